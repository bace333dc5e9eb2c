package opencode

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zoo is a state directory with registrations in it.
type zoo struct {
	t  *testing.T
	in *Install
}

func newZoo(t *testing.T) zoo {
	t.Helper()
	in := &Install{Generation: V2, Version: "2.2.0", Env: []string{"HOME=" + t.TempDir()}}
	if err := os.MkdirAll(in.RegistrationDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return zoo{t, in}
}

// put publishes a file as the server does.
func (z zoo) put(name, text string) {
	z.t.Helper()
	path := filepath.Join(z.in.RegistrationDir(), name)
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		z.t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		z.t.Fatal(err)
	}
}

func register(inc Incarnation) string {
	return fmt.Sprintf(`{"id":%q,"version":%q,"url":%q,"pid":%d,"password":%q}`, inc.ID, inc.Version, inc.URL, inc.PID, inc.Password)
}

// healthyV2 is a server that answers as this process.
func healthyV2(t *testing.T) Incarnation {
	return serve(t, V2, func(w http.ResponseWriter, _ *http.Request) {
		sayJSON(w, 200, fmt.Sprintf(`{"healthy":true,"version":"2.2.0","pid":%d}`, os.Getpid()))
	})
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	good := healthyV2(t)
	with := func(change func(*Incarnation)) string {
		inc := good
		change(&inc)
		return register(inc)
	}
	failed := serve(t, V2, func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 500, `{"healthy":true}`) })
	page := serve(t, V2, func(w http.ResponseWriter, _ *http.Request) { sayPage(w) })
	silent := listen(t, func(net.Conn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	_ = l.Close()
	dead := deadPID(t)

	for name, c := range map[string]struct {
		files     map[string]string
		found     bool
		incumbent string // what the reason holds
	}{
		"nothing":                     {},
		"healthy":                     {files: map[string]string{"service.json": register(good)}, found: true},
		"healthy of a newer version":  {files: map[string]string{"service.json": with(func(i *Incarnation) { i.Version = "2.9.0" })}, found: true},
		"trailing slash":              {files: map[string]string{"service.json": with(func(i *Incarnation) { i.URL += "/" })}, found: true},
		"empty":                       {files: map[string]string{"service.json": ""}},
		"cut off":                     {files: map[string]string{"service.json": register(good)[:40]}},
		"foreign shape":               {files: map[string]string{"service.json": `["a"]`, "service-x.json": `{"pid":"12"}`, "service.yaml.json": `{}`}},
		"no password":                 {files: map[string]string{"service.json": with(func(i *Incarnation) { i.Password = "" })}},
		"pid of init":                 {files: map[string]string{"service.json": with(func(i *Incarnation) { i.PID = 1 })}},
		"negative pid":                {files: map[string]string{"service.json": with(func(i *Incarnation) { i.PID = -7 })}},
		"dead pid":                    {files: map[string]string{"service.json": with(func(i *Incarnation) { i.PID = dead })}},
		"another program has the pid": {files: map[string]string{"service.json": with(func(i *Incarnation) { i.URL = refused })}},
		"another program has the port": {
			files: map[string]string{"service.json": with(func(i *Incarnation) { i.URL = page.URL })},
		},
		"a file is there for each": {
			files: map[string]string{"service.json.tmp": "x", "service.json": "{", "service-latest.json": with(func(i *Incarnation) { i.PID = dead })},
		},
		"failed to boot":    {files: map[string]string{"service.json": register(failed)}, incumbent: "failed to start"},
		"another password":  {files: map[string]string{"service.json": with(func(i *Incarnation) { i.Password = "another" })}, incumbent: "does not accept the password"},
		"silent":            {files: map[string]string{"service.json": with(func(i *Incarnation) { i.URL = silent })}, incumbent: "never answered"},
		"beta shares":       {files: map[string]string{"service-beta.json": with(func(i *Incarnation) { i.Version = "0.0.0-beta-7" })}, incumbent: "another release channel"},
		"dev does not":      {files: map[string]string{"service-dev.json": with(func(i *Incarnation) { i.Version = "0.0.0-dev-7" })}},
		"healthy beside":    {files: map[string]string{"service-a.json": "", "service-dev.json": register(failed), "service.json": register(good)}, found: true},
		"credentials in it": {files: map[string]string{"service.json": with(func(i *Incarnation) { i.URL = strings.Replace(i.URL, "//", "//u:p@", 1) })}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := newZoo(t)
			for file, text := range c.files {
				z.put(file, text)
			}
			inc, err := z.in.Discover(t.Context())
			var incumbent *IncumbentError
			switch {
			case c.found:
				if err != nil || inc.PID != good.PID || inc.URL != good.URL || inc.Generation != V2 {
					t.Errorf("got %v, %v", inc, err)
				}
			case c.incumbent != "":
				if !errors.As(err, &incumbent) || !strings.Contains(incumbent.Reason, c.incumbent) || incumbent.PID != os.Getpid() {
					t.Errorf("got %v, want an incumbent: %s", err, c.incumbent)
				} else if (incumbent.Kind == Healthy) != (name == "beta shares") {
					t.Errorf("it is %s", incumbent.Kind)
				}
			case !errors.Is(err, ErrNone):
				t.Errorf("got %v, %v, want none", inc, err)
			}
			if err != nil && strings.Contains(err.Error(), testPassword) {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

func TestDiscoverWithoutADirectory(t *testing.T) {
	t.Parallel()
	in := &Install{Generation: V2, Version: "2.2.0", Env: []string{"HOME=" + filepath.Join(t.TempDir(), "[none]*")}}
	if _, err := in.Discover(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("got %v", err)
	}
	z := newZoo(t)
	z.put("service.json", register(healthyV2(t)))
	z.in.Generation = V1
	if _, err := z.in.Discover(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("v1: got %v", err)
	}
}

func TestRegistrationsInAnOddlyNamedDirectory(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	z.in.Env = []string{"HOME=" + filepath.Join(t.TempDir(), "a [b] *?")}
	if err := os.MkdirAll(z.in.RegistrationDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	inc := healthyV2(t)
	z.put("service.json", register(inc))
	if got, err := z.in.Discover(t.Context()); err != nil || got.ID != inc.ID {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRegistrationsNewestFirst(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	for n, name := range []string{"service-a.json", "service.json", "service-b.json"} {
		z.put(name, register(Incarnation{ID: name, URL: "http://127.0.0.1:1", PID: 100 + n, Password: "x"}))
		at := time.Now().Add(-time.Duration(n) * time.Hour)
		if err := os.Chtimes(filepath.Join(z.in.RegistrationDir(), name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	got := registrations(z.in.RegistrationDir())
	if len(got) != 3 || got[0].ID != "service-a.json" || got[2].ID != "service-b.json" {
		t.Errorf("got %v", got)
	}
}
