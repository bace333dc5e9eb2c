package supervisor

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/supervisor/control"
)

// unreadable takes away a table of the ledger under the supervisor, or gives it back.
func (b *bed) unreadable(yes bool) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	statement := "ALTER TABLE parked RENAME TO taken"
	if !yes {
		statement = "ALTER TABLE taken RENAME TO parked"
	}
	if _, err := db.ExecContext(b.t.Context(), statement); err != nil {
		b.t.Fatal(err)
	}
}

// lines counts the lines of a log that hold the text.
type lines struct {
	text string
	seen chan struct{}
}

func (l lines) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.text) {
		select {
		case l.seen <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

func (l lines) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.seen:
	case <-time.After(20 * time.Second):
		t.Fatalf("never said: %s", l.text)
	}
}

// notKnown makes b's log tell when consents can't be read.
func (b *bed) notKnown() lines {
	l := lines{"which consents are under way is not known", make(chan struct{})}
	b.o.Log = slog.New(slog.NewTextHandler(l, nil))
	return l
}

func TestAnUpgradeWaitsForConsentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	said := b.notKnown()
	b.start()
	first := b.phase(Running)
	b.unreadable(true)
	put(t, at, "2.3.0")
	for range 2 { // it is asked again, without a change that announces it
		said.await(t)
	}
	if r, ok := loadRecord(b.o.Paths.ServerRecord); !ok || r.ID != first.Server.Incarnation {
		t.Errorf("restarted: %+v", r)
	}
	b.unreadable(false)
	b.status("another incarnation", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	})
}

func TestOurOwnUpgradeWaitsForConsentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Manager, b.o.Program, b.o.Policy = &keeper{restarts: true}, filepath.Join(b.dir, "intermission"), DefaultPolicy
	b.o.Policy.Quiet, b.o.Policy.Settle = 0, 50*time.Millisecond
	ourProgram(t, b.o.Program, `{"version":"1.0"}`)
	said := b.notKnown()
	b.start()
	b.phase(Running)
	b.unreadable(true)
	ourProgram(t, b.o.Program, `{"version":"1.1"}`)
	for range 3 { // a handover itself would say it once more
		said.await(t)
	}
	select {
	case err := <-b.ended:
		t.Fatalf("it has ended: %v", err)
	default:
	}
	b.unreadable(false)
	b.handedOver()
	b.start()
	b.phase(Running)
}
