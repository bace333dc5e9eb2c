package platform

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// serviceUnderTest is this test binary as a service that writes down what happens to it.
func serviceUnderTest(t *testing.T, journal string) Service {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Service{
		Name: app + "-test", Title: "Intermission under test", Comment: "Is taken away again", Version: "1.2",
		Argv: []string{self, "-test.run=^TestServiceProgram$", "--", journal},
	}
}

// TestServiceProgram is what the service of the other tests runs.
func TestServiceProgram(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("it is the program of a service")
	}
	journal, err := os.OpenFile(flag.Arg(0), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = journal.Close() }()
	err = UnderManager(t.Context(), app, func(ctx context.Context, m *ServiceManager) error {
		if !m.Restarts() {
			return errors.New("no service")
		}
		fmt.Fprintln(journal, "started")
		m.Ready()
		<-ctx.Done()
		fmt.Fprintln(journal, context.Cause(ctx))
		return nil
	})
	fmt.Fprintln(journal, "ended", err)
}

func testAccount(t *testing.T) account {
	t.Helper()
	a, err := ownAccount()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAccount(t *testing.T) {
	a := testAccount(t)
	other, err := windows.CreateWellKnownSid(windows.WinLocalSystemSid)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		a.String(): true, strings.ToUpper(a.String()): true, a.sid.String(): true, other.String(): false, "LocalSystem": false, "": false, `NT AUTHORITY\SYSTEM`: false,
	} {
		if a.is(name) != want {
			t.Errorf("%s is %s: %t", name, a, !want)
		}
	}
	if err := a.checkPassword(""); err == nil || !strings.Contains(err.Error(), "--task") {
		t.Errorf("no password: %v", err)
	}
}

// underWine skips what on a real Windows would need a person's password, or would
// change the machine.
func underWine(t *testing.T) {
	t.Helper()
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() != nil {
		t.Skip("this changes the services of the machine: under Wine only")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustBe holds a status against the fields of want that the tests are about.
func mustBe(t *testing.T, s Service, want ServiceStatus) ServiceStatus {
	t.Helper()
	st, err := s.Status(t.Context())
	must(t, err)
	if st.Installed != want.Installed || st.Kind != want.Kind || st.Running != want.Running || st.State != want.State || (st.PID != 0) != (want.State == "running") {
		t.Fatalf("status %+v, want %+v", st, want)
	}
	return st
}

func password(string) (string, error) { return "Wine takes any", nil }

// TestLogonTaskAtTheScheduler sees the scheduler take the definition, and give back
// what Wine's keeps of it: it drops users and actions.
func TestLogonTaskAtTheScheduler(t *testing.T) {
	underWine(t)
	s := serviceUnderTest(t, `C:\journal`)
	t.Cleanup(func() { _ = schedulerTask{s, testAccount(t)}.remove(context.Background()) })
	mustBe(t, s, ServiceStatus{State: "not installed"})
	if _, err := s.Uninstall(t.Context()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("uninstall of nothing: %v", err)
	}
	report, err := s.Install(t.Context(), ServiceOptions{})
	must(t, err)
	if report.Kind != LogonTask || len(report.Done) != 2 || !strings.Contains(report.Done[0], "--service") {
		t.Errorf("it doesn't say which it took and why: %+v", report)
	}
	st := mustBe(t, s, ServiceStatus{Installed: true, Kind: LogonTask, State: "ready"})
	if !st.Enabled || st.Version != s.Version || !strings.HasPrefix(st.Definition, s.Name+"-S-1-5-") {
		t.Errorf("status %+v", st)
	}
	must(t, s.Stop(t.Context()))
	_, err = s.Install(t.Context(), ServiceOptions{}) // over the older one
	must(t, err)
	_, err = s.Uninstall(t.Context())
	must(t, err)
	mustBe(t, s, ServiceStatus{State: "not installed"})
}

func TestLogonTaskHasNoVariablesOfItsOwn(t *testing.T) {
	underWine(t)
	s := serviceUnderTest(t, `C:\journal`)
	s.Env = map[string]string{"INTERMISSION_STATE_DIR": `D:\state`}
	_, err := s.Install(t.Context(), ServiceOptions{Kind: LogonTask})
	if err == nil || !strings.Contains(err.Error(), "setx INTERMISSION_STATE_DIR") {
		t.Errorf("a variable that the task wouldn't have: %v", err)
	}
	mustBe(t, s, ServiceStatus{State: "not installed"})
	k, err := registry.OpenKey(registry.CURRENT_USER, "Environment", registry.SET_VALUE)
	must(t, err)
	defer func() { _ = k.Close() }()
	must(t, k.SetStringValue("INTERMISSION_STATE_DIR", `D:\state`))
	defer func() { _ = k.DeleteValue("INTERMISSION_STATE_DIR") }()
	_, err = s.Install(t.Context(), ServiceOptions{Kind: LogonTask})
	must(t, err)
	_, err = s.Uninstall(t.Context())
	must(t, err)
}

func TestServiceAtTheManager(t *testing.T) {
	underWine(t)
	journal := filepath.Join(t.TempDir(), "journal")
	s := serviceUnderTest(t, journal)
	t.Cleanup(func() { _ = scmService{s, testAccount(t)}.remove(context.Background()) })
	o := ServiceOptions{Kind: WindowsService, AskPassword: password}
	report, err := s.Install(t.Context(), o)
	must(t, err)
	if report.Kind != WindowsService || !strings.Contains(strings.Join(report.Done, "\n"), "log on as a service") {
		t.Errorf("report %+v", report)
	}
	stopped := ServiceStatus{Installed: true, Kind: WindowsService, State: "stopped"}
	if st := mustBe(t, s, stopped); !st.Current || !st.Enabled || st.Program != s.Argv[0] || st.Version != s.Version {
		t.Errorf("status %+v", st)
	}
	h, err := scmService{s, testAccount(t)}.open(windows.SERVICE_QUERY_CONFIG)
	must(t, err)
	var limit, needed uint32
	must(t, windows.QueryServiceConfig2(h.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&limit)), 4, &needed))
	_ = h.Close()
	if limit != uint32(ServiceStopLimit.Milliseconds()) {
		t.Errorf("at the computer's shutdown it has %d ms", limit)
	}
	// Over an older one, and of that without the password.
	newer := s
	newer.Version, newer.Env = "1.3", map[string]string{"INTERMISSION_TEST": "a b"}
	if st, err := newer.Status(t.Context()); err != nil || st.Current {
		t.Errorf("another version's definition is current: %+v, %v", st, err)
	}
	for range 2 {
		_, err = newer.Install(t.Context(), ServiceOptions{})
		must(t, err)
		if st := mustBe(t, newer, stopped); !st.Current || st.Version != "1.3" {
			t.Errorf("status %+v", st)
		}
	}
	for range 2 {
		must(t, s.Start(t.Context()))
		mustBe(t, s, ServiceStatus{Installed: true, Kind: WindowsService, Running: true, State: "running"})
	}
	for range 2 {
		must(t, s.Stop(t.Context()))
		mustBe(t, s, stopped)
	}
	must(t, s.Start(t.Context()))
	_, err = s.Uninstall(t.Context())
	must(t, err)
	mustBe(t, s, ServiceStatus{State: "not installed"})
	got, err := os.ReadFile(journal)
	must(t, err)
	const once = "started\nthe service manager has told it to stop\nended <nil>\n"
	if string(got) != once+once {
		t.Errorf("it was so:\n%s", got)
	}
}

func TestServiceThatCantBeInstalledLeavesNothing(t *testing.T) {
	underWine(t)
	s := serviceUnderTest(t, `C:\journal`)
	t.Cleanup(func() { _ = scmService{s, testAccount(t)}.remove(context.Background()) })
	broken := s
	broken.Version = "\x00" // what is written last
	for _, tt := range []struct {
		what string
		s    Service
		ask  func(string) (string, error)
		want string
	}{
		{"nobody to ask", s, nil, "terminal"},
		{"no password", s, func(string) (string, error) { return "", nil }, "--task"},
		{"given up", s, func(string) (string, error) { return "", errors.New("interrupted") }, "interrupted"},
		{"fails half-way", broken, password, "invalid"},
	} {
		_, err := tt.s.Install(t.Context(), ServiceOptions{Kind: WindowsService, AskPassword: tt.ask})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.what, err)
		}
		mustBe(t, s, ServiceStatus{State: "not installed"})
		if k, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+s.Name, registry.QUERY_VALUE); err == nil {
			_ = k.Close()
			t.Errorf("%s: the registry has something of it", tt.what)
		}
	}
}

func TestServiceChangesItsKind(t *testing.T) {
	underWine(t)
	s := serviceUnderTest(t, `C:\journal`)
	t.Cleanup(func() {
		_ = scmService{s, testAccount(t)}.remove(context.Background())
		_ = schedulerTask{s, testAccount(t)}.remove(context.Background())
	})
	for _, kind := range []ServiceKind{LogonTask, WindowsService, LogonTask} {
		_, err := s.Install(t.Context(), ServiceOptions{Kind: kind, AskPassword: password})
		must(t, err)
		st, err := s.Status(t.Context())
		must(t, err)
		task, err := schedulerTask{s, testAccount(t)}.status(t.Context())
		must(t, err)
		service, err := scmService{s, testAccount(t)}.status(t.Context())
		must(t, err)
		if st.Kind != kind || task.Installed == service.Installed {
			t.Errorf("after the installation of the %s: task %t, service %t", kind, task.Installed, service.Installed)
		}
	}
	if _, err := s.Install(t.Context(), ServiceOptions{Kind: SystemdUser}); err == nil {
		t.Error("Windows has a systemd unit")
	}
}
