package service

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"intermission/supervisor"
)

// logged is how far the supervisor's log had come when its end was asked for: what it
// ended with stands behind, whoever keeps it.
type logged struct {
	path string
	size int64
}

// mostLogged bounds what is read of a log, in bytes.
const mostLogged = 1 << 20

func (b Background) logged() logged {
	l := logged{path: filepath.Join(b.Paths.Log, "intermission.log")}
	if info, err := os.Stat(l.path); err == nil {
		l.size = info.Size()
	}
	return l
}

// unfinished is what the supervisor has said since of what it could not park; nil is
// nothing. What can't be read is nothing: the stop itself has succeeded.
func (l logged) unfinished() error {
	f, err := os.Open(l.path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() < l.size {
		l.size = 0 // it was rotated since
	}
	b, err := io.ReadAll(io.NewSectionReader(f, l.size, mostLogged))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		_, rest, found := strings.Cut(line, strconv.Quote(supervisor.ErrUnfinished.Error()))
		if !found {
			continue
		}
		reason := strings.TrimPrefix(strings.TrimSpace(rest), "reason=")
		if plain, err := strconv.Unquote(reason); err == nil {
			reason = plain
		}
		return fmt.Errorf("%w: %s; start no server before intermission runs again", supervisor.ErrUnfinished, reason)
	}
	return nil
}
