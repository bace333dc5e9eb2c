package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"intermission/platform"
)

// A supervisor that can't have its configuration, or no log, comes all the same: it adopts,
// it parks, and says why it starts no server. Else nobody would keep what is unfinished
// from being resumed by whoever starts a server.
func TestAHandicappedSupervisorGuards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handicap, mend func(*bed)
		phase          Phase
		says           string
	}{
		"no configuration": {
			func(b *bed) { b.o.Fault = errors.New("config.toml: permission denied") },
			func(b *bed) { b.o.Fault = nil },
			Failed, "config.toml: permission denied",
		},
		"a directory in the log's place": {
			func(b *bed) { b.move("server.log") }, func(b *bed) { b.restore("server.log") },
			Blocked, "server.log",
		},
		"a file in the place of the logs": {
			func(b *bed) {
				b.must(os.Rename(b.o.Paths.Log, b.o.Paths.Log+".away"))
				b.must(os.WriteFile(b.o.Paths.Log, nil, 0o600))
			},
			func(b *bed) {
				b.must(os.Remove(b.o.Paths.Log))
				b.must(os.Rename(b.o.Paths.Log+".away", b.o.Paths.Log))
			},
			Blocked, "server.log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.start()
			before := b.phase(Running)
			b.atWork(b.prompt("[[slow n=900 ms=50]]"))
			if _, err := b.client.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.handedOver()
			c.handicap(b)
			b.start()
			if st := b.phase(Running); st.Server.PID != before.Server.PID {
				t.Errorf("the server is not adopted: %+v", st.Server)
			}
			signal(t, before.Server.PID, platform.Kill)
			st := b.phase(c.phase)
			if !strings.Contains(st.Server.Reason, c.says) || st.Sessions.Pending != 1 {
				t.Errorf("%+v", st)
			}
			b.stop()
			c.mend(b)
			b.start()
			if st := b.phase(Running); st.Sessions.Pending != 1 || len(st.Sessions.Active) > 0 {
				t.Errorf("%+v", st.Sessions)
			}
		})
	}
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// move puts a directory in the place of a log.
func (b *bed) move(log string) {
	b.t.Helper()
	path := filepath.Join(b.o.Paths.Log, log)
	b.must(os.Rename(path, path+".away"))
	b.must(os.Mkdir(path, 0o700))
}

// restore takes it away again.
func (b *bed) restore(log string) {
	b.t.Helper()
	path := filepath.Join(b.o.Paths.Log, log)
	b.must(os.Remove(path))
	b.must(os.Rename(path+".away", path))
}
