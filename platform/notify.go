package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
)

// Notice is one desktop notification.
type Notice struct {
	Kind   string // a newer notice of a kind takes the place of the older where the desktop can
	Title  string // plain text, ours; one line
	Body   string // plain text, untrusted: it is shown as text whatever is in it; may have lines
	Urgent bool
	NoShow bool // there is nothing more to be shown: it has no button
}

// notifyTimeout bounds one Send, waiting for an earlier one included.
const notifyTimeout = 5 * time.Second

var errNotifierClosed = errors.New("the notifier is closed")

// Notifier shows notices. What the desktop can't do (replace, buttons, icon) is
// left out. It connects at the first Send; until then, and between two, it costs
// nothing. Safe for use by several goroutines.
type Notifier struct {
	log  *slog.Logger
	icon []byte
	show chan string
	presenter
}

// NewNotifier makes a notifier whose notices carry the icon (a PNG of up to
// 256x256; one that can't be read is left out).
func NewNotifier(icon []byte, log *slog.Logger) *Notifier {
	n := &Notifier{log: log, icon: icon, show: make(chan string, 8)}
	n.open()
	return n
}

// Send shows a notice. It takes at most 5 s and never panics. An error says that
// this one wasn't shown; the next Send tries anew, with a new connection where one is needed.
func (n *Notifier) Send(ctx context.Context, notice Notice) (err error) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot show a notification: %v", p)
		}
	}()
	notice.Title = strings.ReplaceAll(noticeText(notice.Title), "\n", " ")
	notice.Body = noticeText(notice.Body)
	if err := n.present(ctx, notice); err != nil {
		return fmt.Errorf("cannot show a notification: %w", err)
	}
	return nil
}

// Show gives the Kind of a notice whose "Show" the person chose: on Linux, where
// the desktop offers actions, once for each notice; elsewhere never. The channel is never closed. Eight
// are kept for a slow reader, more are dropped.
func (n *Notifier) Show() <-chan string { return n.show }

// Close ends the connection. A Send after it fails.
func (n *Notifier) Close() { n.close() }

// noticeText keeps line breaks and drops what could disguise the rest of a text:
// other control characters, and those that turn the direction of writing. What is
// no valid UTF-8 is replaced, for a message bus hangs up on it.
func noticeText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t', r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}
