package platform

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestInstallUserUnit(t *testing.T) {
	m := newFakeManager(t)
	report := m.install(testService(), ServiceOptions{})
	want, err := PackagedUnit("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, m.read(m.unit())); diff != "" {
		t.Errorf("the unit -want +got:\n%s", diff)
	}
	if got := m.done(); got != "daemon-reload enable" {
		t.Errorf("the manager was told %q", got)
	}
	if report.Kind != SystemdUser || len(report.Done) != 2 || len(report.Next) != 2 {
		t.Errorf("got the report %+v", report)
	}
	if st := m.status(testService()); !st.Installed || !st.Enabled || !st.Current || st.Running ||
		st.Definition != m.unit() || st.Program != "/usr/bin/intermission" || st.Version != "1.2.3" {
		t.Errorf("got the status %+v", st)
	}
	info, err := os.Stat(m.unit())
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the unit has the mode %v, %v", info.Mode(), err)
	}

	// Once more changes nothing.
	before := m.tree()
	report = m.install(testService(), ServiceOptions{})
	if diff := cmp.Diff(before, m.tree()); diff != "" || m.done() != "" || len(report.Done) != 1 {
		t.Errorf("the second installation did %v:\n%s", report, diff)
	}

	// A newer version is written over it, and what runs is left to run.
	m.write("active", "")
	newer := SupervisorService("/usr/bin/intermission", "1.3.0")
	if st := m.status(newer); !st.Current || st.Version != "1.2.3" { // an older stamp alone is nothing to be told
		t.Errorf("got the status %+v", st)
	}
	report = m.install(newer, ServiceOptions{})
	if got := m.done(); got != "daemon-reload reenable" {
		t.Errorf("the manager was told %q", got)
	}
	if st := m.status(newer); !st.Current || st.Version != "1.3.0" || !st.Running || st.PID != 4711 || st.State != "active (running): 2 sessions pending" {
		t.Errorf("got the status %+v", st)
	}
	if len(report.Next) == 0 || !strings.Contains(report.Next[0], "intermission service restart") {
		t.Errorf("nothing says that the older definition still runs: %+v", report)
	}
}

func TestInstallLeavesNothingWhenItFails(t *testing.T) {
	const masked = "LoadState=masked\n"
	for name, c := range map[string]struct {
		file, words string // of the fake manager
		older, want string
	}{
		"daemon-reload":            {"daemon-reload.fails", "no reload today", "", "no reload today"},
		"daemon-reload over older": {"daemon-reload.fails", "no reload today", "1.0", "no reload today"},
		"enable":                   {"enable.fails", "no enable today", "", "no enable today"},
		"enable over older":        {"reenable.fails", "no enable today", "1.0", "no enable today"},
		"linger":                   {"enable-linger.fails", "not you", "", "sudo loginctl enable-linger alice"},
		"no manager":               {"show.fails", "no bus", "", "log in as alice"},
		"masked":                   {"props", masked, "", "systemctl --user unmask intermission.service"},
		"masked over older":        {"props", masked, "1.0", "systemctl --user unmask intermission.service"},
		"enable hangs":             {"enable.hangs", "", "", "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeManager(t)
			if c.older != "" {
				m.install(SupervisorService("/opt/older", c.older), ServiceOptions{})
			}
			before := m.tree()
			m.write(c.file, c.words)
			ctx, stop := context.WithTimeout(t.Context(), patience)
			if name == "enable hangs" || name == "no manager" {
				ctx, stop = context.WithTimeout(t.Context(), 2*time.Second)
			}
			defer stop()
			report, err := m.host.install(ctx, testService(), ServiceOptions{Linger: true})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(report.Done) != 0 {
				t.Errorf("got %+v and the error %v, want one about %q", report, err, c.want)
			}
			if diff := cmp.Diff(before, m.tree()); diff != "" {
				t.Errorf("left behind:\n%s", diff)
			}
		})
	}
}

func TestInstallOverThePackage(t *testing.T) {
	m := newFakeManager(t)
	packaged, err := PackagedUnit("1.2.2") // another version alone makes no difference
	if err != nil {
		t.Fatal(err)
	}
	m.write("usr/systemd/user/intermission.service", packaged)
	m.write("loaded", packaged)
	if st := m.status(testService()); st.Installed {
		t.Errorf("what a package brought and nobody asked for: %+v", st)
	}
	m.install(testService(), ServiceOptions{})
	if _, err := os.Lstat(m.unit()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a unit of the user's beside the package's: %v", err)
	}
	if st := m.status(testService()); !st.Installed || !st.Current || !st.Enabled || st.Definition != m.path("usr/systemd/user/intermission.service") {
		t.Errorf("got the status %+v", st)
	}

	own := testService()
	own.Env = map[string]string{"INTERMISSION_STATE_DIR": "/data"}
	m.install(own, ServiceOptions{})
	if st := m.status(own); !st.Current || st.Definition != m.unit() {
		t.Errorf("got the status %+v", st)
	}
	if st := m.status(testService()); st.Current {
		t.Errorf("got the status %+v", st)
	}
	m.install(testService(), ServiceOptions{})
	if st := m.status(testService()); !st.Current || !st.Enabled || st.Definition != m.path("usr/systemd/user/intermission.service") {
		t.Errorf("got the status %+v", st)
	}

	report, err := m.host.uninstall(t.Context(), testService())
	if err != nil || m.read(m.path("usr/systemd/user/intermission.service")) != packaged {
		t.Errorf("%+v, %v", report, err)
	}
	if st := m.status(testService()); st.Installed || st.Enabled {
		t.Errorf("got the status %+v", st)
	}
}

func TestInstallRefuses(t *testing.T) {
	m := newFakeManager(t)
	for name, c := range map[string]struct {
		uid  int
		o    ServiceOptions
		want string
	}{
		"root":              {0, ServiceOptions{}, "never runs as root"},
		"root's desktop":    {0, ServiceOptions{Kind: DesktopLogin}, "never runs as root"},
		"root as the user":  {0, ServiceOptions{User: "root"}, "never runs as root"},
		"no such user":      {0, ServiceOptions{User: "bob"}, "no user bob"},
		"system, no user":   {0, ServiceOptions{Kind: SystemdSystem}, "--user NAME"},
		"system, not root":  {7, ServiceOptions{User: "alice"}, "sudo intermission service install --system --user alice"},
		"another's unit":    {7, ServiceOptions{Kind: SystemdUser, User: "bob"}, "not for bob"},
		"lingering desktop": {7, ServiceOptions{Kind: DesktopLogin, Linger: true}, "lingering"},
		"Windows":           {7, ServiceOptions{Kind: LogonTask}, "on Linux"},
	} {
		t.Run(name, func(t *testing.T) {
			before := m.tree()
			h := m.host
			h.uid = c.uid
			_, err := h.install(t.Context(), testService(), c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one about %q", err, c.want)
			}
			if diff := cmp.Diff(before, m.tree()); diff != "" {
				t.Errorf("left behind:\n%s", diff)
			}
		})
	}
	m.write("config/systemd/user/intermission.service", "[Service]\nExecStart=/bin/own\n")
	if _, err := m.host.install(t.Context(), testService(), ServiceOptions{}); err == nil || !strings.Contains(err.Error(), "wasn't written by intermission") {
		t.Errorf("somebody's own unit: %v", err)
	}
	if _, err := m.host.uninstall(t.Context(), testService()); err == nil || !strings.Contains(err.Error(), "remove it yourself") {
		t.Errorf("somebody's own unit: %v", err)
	}
	if m.read(m.unit()) != "[Service]\nExecStart=/bin/own\n" {
		t.Error("somebody's own unit was changed")
	}
}

func TestInstallLingers(t *testing.T) {
	m := newFakeManager(t)
	m.install(testService(), ServiceOptions{Linger: true})
	if got := m.done(); got != "enable-linger daemon-reload enable" {
		t.Errorf("the system was told %q", got)
	}
	if st := m.status(testService()); !st.Lingering {
		t.Errorf("got the status %+v", st)
	}
	report, err := m.host.uninstall(t.Context(), testService())
	if err != nil || len(report.Next) != 1 || !strings.Contains(report.Next[0], "loginctl disable-linger alice") {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestInstallReplacesTheDesktopsEntry(t *testing.T) {
	m := newFakeManager(t)
	h := m.host
	h.booted = m.path("no-systemd")
	s := testService()
	if _, err := h.install(t.Context(), s, ServiceOptions{}); err != nil {
		t.Fatal(err)
	}
	entry := m.path("home/elsewhere/autostart/intermission.desktop")
	if !strings.Contains(m.read(entry), "Exec=/usr/bin/intermission run --service") {
		t.Fatal(m.tree())
	}
	m.install(s, ServiceOptions{})
	if _, err := os.Stat(entry); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the desktop still starts a second one: %v", err)
	}
}

func TestUninstallUnit(t *testing.T) {
	m := newFakeManager(t)
	if _, err := m.host.uninstall(t.Context(), testService()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	m.install(testService(), ServiceOptions{})
	m.write("active", "")
	m.done()
	// What can't be stopped is not uninstalled.
	before := m.tree()
	m.write("stop.fails", "no stop today")
	if _, err := m.host.uninstall(t.Context(), testService()); err == nil || !strings.Contains(err.Error(), "no stop today") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("it goes on, and this is gone:\n%s", diff)
	}
	if err := os.Remove(m.path("stop.fails")); err != nil {
		t.Fatal(err)
	}
	m.done()
	if _, err := m.host.uninstall(t.Context(), testService()); err != nil {
		t.Fatal(err)
	}
	if got := m.done(); got != "stop disable daemon-reload reset-failed" {
		t.Errorf("the manager was told %q", got)
	}
	if st := m.status(testService()); st.Installed || st.Kind != "" {
		t.Errorf("got the status %+v", st)
	}
	if _, err := m.host.uninstall(t.Context(), testService()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func TestStartUnit(t *testing.T) {
	m := newFakeManager(t)
	start := func() error { return m.host.act(t.Context(), testService(), "start", keeper.start) }
	if err := start(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	m.install(testService(), ServiceOptions{})
	m.done()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	if got := m.done(); got != "reset-failed start" {
		t.Errorf("the manager was told %q", got)
	}
	if err := start(); err != nil || m.done() != "" {
		t.Errorf("what runs was started: %v", err)
	}
	if err := m.host.act(t.Context(), testService(), "stop", keeper.stop); err != nil || m.done() != "stop" {
		t.Error(err)
	}

	m.write("start.fails", "Job for intermission.service failed.\nSee \"systemctl --user status\" for details.\n")
	m.write("props", "ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainCode=1\nExecMainStatus=2\n")
	m.write("home/state/intermission/log/intermission.log", strings.Repeat("x", 9000)+"\nlevel=ERROR the last of the log\n")
	want := " (the unit is activating (auto-restart), its exit status was 2)"
	if err := start(); err == nil || err.Error() != "cannot start the service: it said: level=ERROR the last of the log"+want {
		t.Errorf("got %v", err)
	}
	m.write("journal", "intermission: config.toml: line 3\n")
	if err := start(); err == nil || err.Error() != "cannot start the service: it said: config.toml: line 3"+want {
		t.Errorf("got %v", err)
	}
	// What another command does to it meanwhile is no fault that the supervisor has told.
	m.write("props", "ActiveState=deactivating\nSubState=stop-sigterm\nResult=success\n")
	if err := start(); err == nil || strings.Contains(err.Error(), "it said") || !strings.Contains(err.Error(), "The unit is deactivating") {
		t.Errorf("got %v", err)
	}
	m.write("start.fails", "Job for intermission.service canceled.\n")
	if err := start(); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("got %v", err)
	}
	m.write("props", "LoadState=masked\n")
	if err := start(); err == nil || !strings.Contains(err.Error(), "systemctl --user unmask intermission") {
		t.Errorf("got %v", err)
	}
}

func TestStopUnitThatWasKilled(t *testing.T) {
	m := newFakeManager(t)
	m.install(testService(), ServiceOptions{})
	m.write("props", "ActiveState=failed\nSubState=failed\nResult=timeout\n")
	err := m.host.act(t.Context(), testService(), "stop", keeper.stop)
	if err == nil || !strings.Contains(err.Error(), "within 90 s") {
		t.Errorf("got %v", err)
	}
}

// One that has failed says why, and one that runs has nothing of before to say.
func TestUnitStatusOfAFailure(t *testing.T) {
	m := newFakeManager(t)
	m.install(testService(), ServiceOptions{})
	m.write("journal", "intermission: config.toml:3: unknown key\n")
	for _, state := range []string{"ActiveState=failed\nSubState=failed\n", "ActiveState=activating\nSubState=auto-restart\n"} {
		m.write("props", state+"Result=exit-code\n")
		if st := m.status(testService()); st.Failure != "config.toml:3: unknown key" || st.Comes {
			t.Errorf("%q: got %+v", state, st)
		}
	}
	m.write("props", "ActiveState=activating\nSubState=auto-restart\nResult=success\n") // after a handover
	if st := m.status(testService()); st.Failure != "" || !st.Comes {
		t.Errorf("got %+v", st)
	}
	m.write("props", "ActiveState=active\nSubState=running\nMainPID=5\n")
	if st := m.status(testService()); st.Failure != "" {
		t.Errorf("got %q", st.Failure)
	}
}

func TestUnitStatus(t *testing.T) {
	m := newFakeManager(t)
	m.install(testService(), ServiceOptions{})
	for props, want := range map[string]struct {
		state   string
		running bool
	}{
		"ActiveState=active\nSubState=running\nMainPID=5\nStatusText=running\n":                                    {"active (running)", true},
		"ActiveState=active\nSubState=running\nMainPID=5\nStatusText=running, 1 session pending\n":                 {"active (running), 1 session pending", true},
		"ActiveState=active\nSubState=running\nMainPID=5\nStatusText=failed: no program\n":                         {"active (running): failed: no program", true},
		"ActiveState=inactive\nSubState=dead\nStatusText=stopping\n":                                               {"inactive (dead)", false},
		"ActiveState=activating\nSubState=start\nMainPID=5\nStatusText=waits for the server\n":                     {"activating (start): waits for the server", true},
		"ActiveState=deactivating\nSubState=stop-sigterm\nMainPID=5\nStatusText=stopping\n":                        {"deactivating (stop-sigterm): stopping", true},
		"ActiveState=failed\nSubState=failed\nResult=watchdog\nExecMainCode=2\nExecMainStatus=6\n":                 {"failed (failed), watchdog, signal 6 ended it", false},
		"ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainCode=1\nExecMainStatus=1\n":      {"activating (auto-restart), its exit status was 1", false},
		"LoadState=masked\nActiveState=inactive\nSubState=dead\nFragmentPath=/dev/null\nUnitFileState=masked\n":    {"masked", false},
		"NeedDaemonReload=yes\nActiveState=active\nSubState=running\nMainPID=5\nStatusText=running = it is fine\n": {"active (running): running = it is fine", true},
	} {
		m.write("props", props)
		st := m.status(testService())
		if st.State != want.state || st.Running != want.running {
			t.Errorf("%q: got %+v", props, st)
		}
		if st.Current == strings.Contains(props, "NeedDaemonReload") && st.State != stateMasked {
			t.Errorf("%q: current %t", props, st.Current)
		}
	}

	// Without a manager the files tell.
	m.write("show.fails", "Failed to connect to bus: No such file or directory\n")
	t.Setenv("XDG_CONFIG_HOME", m.path("config"))
	st := m.status(testService())
	if !st.Installed || !st.Enabled || st.Running || st.Version != "1.2.3" || !strings.Contains(st.State, "log in as alice") {
		t.Errorf("got %+v", st)
	}
}

func TestSystemUnit(t *testing.T) {
	m := newFakeManager(t)
	m.write("is-system", "")
	h := m.host
	h.uid, h.name, h.system = 0, "root", m.path("system")
	file := m.path("system/intermission.service")
	s := testService()
	s.Env = map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/root/s", "INTERMISSION_CONFIG": "/etc/i.toml"}
	if _, err := h.install(t.Context(), s, ServiceOptions{User: "alice"}); err != nil {
		t.Fatal(err)
	}
	unit := m.read(file)
	if !strings.Contains(unit, "User=alice\n") || strings.Contains(unit, "root") || !strings.Contains(unit, "INTERMISSION_CONFIG") {
		t.Error(unit)
	}
	if _, st, err := h.installed(t.Context(), s); err != nil || !st.Installed || !st.Current || st.Kind != SystemdSystem || st.User != "alice" {
		t.Errorf("got %+v, %v", st, err)
	}
	// The user whose it is sees it, waits for it, and can't start it.
	h.uid, h.name = 7, "alice"
	k, st, err := h.installed(t.Context(), s)
	if err != nil || st.User != "alice" || st.Kind != SystemdSystem {
		t.Fatalf("got %+v, %v", st, err)
	}
	m.done()
	if err := k.start(t.Context()); err == nil || !strings.Contains(err.Error(), "sudo intermission service start") || m.done() != "" {
		t.Errorf("got %v", err)
	}
	m.write("props", "ActiveState=activating\nSubState=auto-restart\n")
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if err := k.start(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("didn't wait: %v", err)
	}
	m.write("props", "ActiveState=active\n")
	if err := k.start(t.Context()); err != nil || m.done() != "" {
		t.Error(err)
	}
	m.write("props", "")
	h.uid, h.name = 0, "root"
	// One whose user is gone can go too; another's is left alone.
	m.write("system/intermission.service", strings.ReplaceAll(unit, "User=alice", "User=bob"))
	m.write("loaded", strings.ReplaceAll(unit, "User=alice", "User=bob"))
	if _, err := h.install(t.Context(), s, ServiceOptions{User: "alice"}); err == nil || !strings.Contains(err.Error(), "is bob's") {
		t.Errorf("got %v", err)
	}
	if _, err := h.uninstall(t.Context(), s); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestToolsDontInheritTheManager(t *testing.T) {
	m := newFakeManager(t)
	m.install(testService(), ServiceOptions{})
	if log := m.done(); strings.Contains(log, "NOTIFY_SOCKET") {
		t.Error(log)
	}
}

func TestShellWords(t *testing.T) {
	t.Parallel()
	got := shellWords(`/a/b "/home/a b/\"c\"\$x" "" /d`)
	if diff := cmp.Diff([]string{"/a/b", `/home/a b/"c"$x`, "", "/d"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
