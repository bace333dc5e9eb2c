package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"intermission/platform"
)

// TestNothingIsThere: on a machine on which nothing was ever started each check
// still answers, and nothing is left behind.
func TestNothingIsThere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	before := h.listing()
	began := time.Now()
	r := h.run()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	for i, c := range r.Checks {
		if c.Name != examinations[i].name || c.Detail == "" || strings.ContainsAny(c.Detail+c.Act, "\n\x1b") {
			t.Errorf("check %d: %+v", i, c)
		}
		if bad := c.State == Warning || c.State == Failed; bad != (c.Act != "") {
			t.Errorf("%s is %s, and its act is %q", c.Name, c.State, c.Act)
		}
	}
	if r.OK {
		t.Error("all is well, with no supervisor")
	}
	if after := h.listing(); !slices.Equal(before, after) {
		t.Errorf("there were\n%q\nand now are\n%q", before, after)
	}
	t.Log("\n" + r.Text(false))
}

// listing is every file of the home, with its size and time.
func (h *home) listing() (list []string) {
	h.t.Helper()
	must(h.t, filepath.Walk(h.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		line := path + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			line += fmt.Sprint(" ", info.Size(), info.ModTime())
		}
		list = append(list, line)
		return nil
	}))
	return list
}

// TestAllIsThere: beside a running supervisor and its server, and after they ended.
func TestAllIsThere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	_, stop := h.supervise("running")
	h.finds("configuration", OK, "config.toml")
	h.finds("directories", OK)
	h.finds("supervisor", OK, "1.2.3")
	h.finds("socket", OK)
	h.finds("instance lock", OK, "held by the supervisor")
	h.finds("program", OK, "named in")
	h.finds("version", OK, "2.2.0", "v2")
	h.finds("server", OK, "pid")
	h.finds("server version", OK)
	h.finds("server lock", OK, "held by the managed server")
	h.finds("other servers", OK)
	h.finds("port", Skipped)
	h.finds("database", OK, "claims")
	h.finds("ledger", OK, "0 wait")
	h.finds("disk", OK)
	h.finds("logs", OK)
	h.finds("clock", OK, "synchronised")
	h.o.Version = "9.9.9"
	h.finds("supervisor", Warning, "1.2.3", "9.9.9", "intermission service restart")
	stop()

	before := h.listing()
	h.finds("supervisor", Failed, "intermission service")
	h.finds("socket", Skipped)
	h.finds("instance lock", OK, "free")
	h.finds("server", Skipped)
	h.finds("server lock", OK, "free")
	h.finds("other servers", OK)
	h.finds("database", OK, "claims")
	h.finds("ledger", OK, "0 wait")
	if after := h.listing(); !slices.Equal(before, after) {
		t.Errorf("there were\n%q\nand now are\n%q", before, after)
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("configuration", OK)
	h.config("[nonsense]\nx = 1\n")
	h.finds("configuration", Failed, "config.toml:4", "nonsense", "edit "+h.paths.ConfigFile)
	h.write("config.toml", "[server\n")
	h.finds("configuration", Failed, "config.toml:1")
	h.write("config.toml", strings.Repeat("# x\n", maxConfig/4+1))
	h.finds("configuration", Failed, "larger")
	must(t, os.Remove(h.paths.ConfigFile))
	h.finds("configuration", Failed, "cannot read")
	delete(h.env, "INTERMISSION_CONFIG")
	h.finds("configuration", OK, "defaults")
	h.env["INTERMISSION_STATE_DIR"] = "relative"
	h.finds("configuration", Failed, "relative")
	h.finds("directories", Failed, "relative", "absolute path")
	h.finds("ledger", Skipped)
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("directories", OK, "first start")
	must(t, os.MkdirAll(h.paths.Runtime, 0o700))
	must(t, os.Chmod(h.paths.Runtime, 0o755))
	h.finds("directories", Failed, "0755", "chmod 700 "+h.paths.Runtime)
	must(t, os.Chmod(h.paths.Runtime, 0o700))
	must(t, os.Symlink(h.dir, h.paths.State))
	h.finds("directories", Failed, "symbolic link", "remove it")
}

func TestSocketThatIsLeftOver(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, os.MkdirAll(h.paths.Runtime, 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.paths.Socket})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
	must(t, os.Chmod(h.paths.Socket, 0o600))
	h.finds("socket", Warning, "left over", "intermission run")
	must(t, os.Chmod(h.paths.Socket, 0o666))
	h.finds("socket", Failed, "0666", "chmod 600 "+h.paths.Socket)
	h.finds("supervisor", Failed, "0666")
	must(t, os.Remove(h.paths.Socket))
	must(t, os.WriteFile(h.paths.Socket, nil, 0o600))
	h.finds("socket", Failed, "not a socket", "remove it")
}

// TestSocketThatIsSilent: somebody accepts and never answers.
func TestSocketThatIsSilent(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	l, err := platform.Listen(h.paths.Socket)
	must(t, err)
	defer l.Close()
	h.finds("socket", Failed, "connected to")
}

func TestInstanceLock(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("instance lock", OK, "free")
	must(t, os.MkdirAll(h.paths.Runtime, 0o700))
	lock, err := platform.TryLock(h.paths.InstanceLock)
	must(t, err)
	h.finds("instance lock", Failed, fmt.Sprintf("pid %d", os.Getpid()), fmt.Sprintf("kill %d", os.Getpid()))
	must(t, lock.Unlock())
	h.finds("instance lock", OK, "free")
}

// TestChecksAreBounded: one that hangs, and one that panics, are failures among the others.
func TestChecksAreBounded(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := newPatient(ctx, h.o)
	hang := examination{"hang", time.Millisecond, func(_ *patient, _ context.Context) Check {
		<-ctx.Done()
		return ok("")
	}}
	if c := p.perform(ctx, hang); c.State != Failed || !strings.Contains(c.Detail, "no answer within 1ms") || c.Act == "" {
		t.Errorf("%+v", c)
	}
	cancel()
	panics := examination{"panic", 0, func(*patient, context.Context) Check { panic("oh\x1b[31m no") }}
	if c := p.perform(t.Context(), panics); c.State != Failed || c.Detail != "the check itself failed: oh no" {
		t.Errorf("%+v", c)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	r := Report{Checks: []Check{{"one", OK, "fine", ""}, {"the other", Failed, "broken", "mend it"}, {"third", Skipped, "not here", ""}}}
	const want = `ok       one        fine
failed   the other  broken
                    → mend it
skipped  third      not here

1 ok, 0 with a warning, 1 failed, 1 skipped
`
	if got := r.Text(false); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	coloured := r.Text(true)
	if !strings.Contains(coloured, "\x1b[31mfailed\x1b[0m   the other") {
		t.Errorf("%q", coloured)
	}
	var back Report
	text, err := json.Marshal(r)
	must(t, err)
	must(t, json.Unmarshal(text, &back))
	if !slices.Equal(back.Checks, r.Checks) || !strings.HasPrefix(string(text), `{"ok":false,`) {
		t.Errorf("%s", text)
	}
}
