package doctor

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"intermission/supervisor/control"
)

// unpacked are the files of an archive, by name.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	files := map[string]string{}
	if strings.HasSuffix(path, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		must(t, err)
		for _, f := range z.File {
			r, err := f.Open()
			must(t, err)
			text, err := io.ReadAll(r)
			must(t, err)
			files[strings.TrimPrefix(f.Name, directory)] = string(text)
		}
		return files
	}
	g, err := gzip.NewReader(bytes.NewReader(data))
	must(t, err)
	r := tar.NewReader(g)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		files[strings.TrimPrefix(h.Name, directory)] = string(text)
	}
}

// bundle writes a bundle and unpacks it.
func (h *home) bundle(b BundleOptions) (Bundled, map[string]string) {
	h.t.Helper()
	t := h.t.(*testing.T)
	h.o.Process = h.process()
	b.Path = filepath.Join(h.dir, "out", b.Path)
	must(t, os.MkdirAll(filepath.Dir(b.Path), 0o755))
	done, err := Bundle(t.Context(), h.o, Run(t.Context(), h.o), b)
	must(t, err)
	info, err := os.Stat(b.Path)
	must(t, err)
	if info.Mode().Perm() != 0o600 || done.Path != b.Path || int64(done.Bytes) != info.Size() {
		t.Errorf("%v, %+v", info.Mode(), done)
	}
	files := unpacked(t, b.Path)
	if len(files) != len(done.Files) {
		t.Errorf("it says that it holds %q", done.Files)
	}
	if left, _ := filepath.Glob(filepath.Join(h.dir, "out", ".*")); len(left) > 0 {
		t.Errorf("%q were left", left)
	}
	return done, files
}

// The secrets and texts that are planted.
const (
	plantedPassword = "Pa55/word+with\"quotes&more"
	plantedToken    = "tokentokentoken4711"
	plantedKey      = "anthropic-key-0815-abcdefgh"
	plantedProxy    = "proxyPa55w0rd"
	plantedKept     = "kept-8811-secret"
	plantedLogin    = "login\"8812-secret"
	plantedOld      = "old-8813-secret"
	plantedValue    = "a value of the environment"
	plantedPrompt   = "[[slow n=6000 ms=100]] Wind up the Umbrella Corporation, quietly and before noon"
)

// plant puts secrets and texts wherever they could be.
func (h *home) plant(inc serverRecord) {
	h.t.Helper()
	t := h.t
	h.env["MY_SERVICE_TOKEN"] = plantedToken
	h.env["ANTHROPIC_API_KEY"] = plantedKey
	h.env["HTTPS_PROXY"] = "http://bob:" + plantedProxy + "@proxy:3128"
	h.write("environment", "# kept\nKEPT_TOKEN=\""+plantedKept+"\"\n")
	memory, err := json.Marshal(map[string]any{"login": []string{"LOGIN_KEY=" + plantedLogin}, "process": []string{"OLD_SECRET=" + plantedOld}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(h.paths.State, "environment.json"), memory, 0o600))
	auth, err := json.Marshal(map[string]any{"anthropic": map[string]string{"type": "api", "key": plantedKey + "-file"}})
	must(t, err)
	h.write(".local/share/opencode/auth.json", string(auth))
	service, err := json.Marshal(map[string]any{"hostname": "127.0.0.1", "password": plantedPassword})
	must(t, err)
	h.write(".config/opencode/service.json", string(service))
	self, err := os.Executable()
	must(t, err)
	h.write("config.toml", fmt.Sprintf("# the password is %s\n[server]\ncommand = [%q, \"serve\", \"--service\"]\n[server.environment]\nPLAIN = %q\n%s = \"1\"\n",
		plantedToken, self, plantedValue, asServer))
	lines := []string{"time=2026-11-30T23:00:00Z level=INFO msg=\"a line that helps\" pid=17"}
	for _, s := range []string{plantedPassword, plantedToken, plantedKey, plantedKey + "-file", plantedProxy, inc.Password,
		plantedKept, plantedLogin, plantedOld} {
		basic := base64.StdEncoding.EncodeToString([]byte("opencode:" + s))
		quoted, _ := json.Marshal(map[string]string{"what": s})
		lines = append(lines, s, basic, url.QueryEscape(s), string(quoted), strconv.Quote(string(quoted)), "a "+s+" b",
			"Authorization: Basic "+basic, "http://opencode:"+url.PathEscape(s)+"@127.0.0.1/")
	}
	lines = append(lines, plantedPrompt, "level=WARN error="+strconv.Quote("the server said: "+plantedPrompt[:50]+"…"),
		"level=WARN title="+strconv.Quote("Umbrella waits")+" error=none", "in "+h.dir+"/project")
	for _, name := range []string{"intermission.log", "tray.log", "start.log"} {
		must(t, os.MkdirAll(h.paths.Log, 0o700))
		f, err := os.OpenFile(filepath.Join(h.paths.Log, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
		must(t, err)
		must(t, f.Close())
	}
	f, err := os.OpenFile(filepath.Join(h.paths.Log, "server.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString("the server prints " + plantedPrompt + " and " + plantedPassword + "\n")
	must(t, err)
	must(t, f.Close())
}

// prompt gives the running server a session at work.
func (h *home) prompt(r serverRecord, text string) {
	h.t.Helper()
	post := func(path string, in, out any) {
		body, err := json.Marshal(in)
		must(h.t, err)
		req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, r.URL+path, bytes.NewReader(body))
		must(h.t, err)
		req.SetBasicAuth("opencode", r.Password)
		req.Header.Set("Content-Type", "application/json")
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		must(h.t, err)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			h.t.Fatalf("%s answers %s", path, resp.Status)
		}
		must(h.t, json.NewDecoder(resp.Body).Decode(out))
	}
	var made struct {
		Data struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	post("/api/session", map[string]any{"location": map[string]string{"directory": h.dir}}, &made)
	post("/api/session/"+made.Data.ID+"/prompt", map[string]string{"text": text}, new(any))
}

func (h *home) record() (r serverRecord) {
	h.t.Helper()
	must(h.t, readJSON(h.paths.ServerRecord, &r))
	return r
}

// TestBundleHoldsNoSecret: with one session pending and another at work, and
// secrets and texts planted wherever they could be.
func TestBundleHoldsNoSecret(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	client, stop := h.supervise("running")
	working := func() bool {
		st, err := client.Status(t.Context())
		return err == nil && len(st.Sessions.Active) == 1
	}
	h.prompt(h.record(), plantedPrompt)
	h.until("a session is at work", working)
	stop()
	client, _ = h.supervise("running")
	h.until("it waits", func() bool {
		p, err := client.Pending(t.Context())
		return err == nil && len(p.Pending) == 1 && p.Pending[0].LastPrompt != nil
	})
	h.prompt(h.record(), plantedPrompt)
	h.until("another is at work", working)
	h.plant(h.record())

	sought := []string{plantedPassword, plantedToken, plantedKey, plantedProxy, plantedValue, h.record().Password, h.dir,
		plantedKept, plantedLogin, plantedOld}
	var forms []string
	for _, s := range sought {
		forms = append(forms, encodings(s)...)
	}
	texts := []string{"Umbrella", "Wind up", "quietly and", "the server prints"}
	done, files := h.bundle(BundleOptions{Path: "b.zip"})
	for name, text := range files {
		for _, s := range append(slices.Clone(forms), texts...) {
			if strings.Contains(text, s) {
				t.Errorf("%s holds %q", name, s)
			}
		}
	}
	for name, wants := range map[string]string{
		"README.txt": "Look through it", "doctor.txt": "1.2.3", "doctor.json": `"checks"`, "status.json": `"running"`, "pending.json": `"ses_`,
		"ledger.json": `"suspended"`, "config.toml": "PLAIN = '(redacted)'", "log/intermission.log": "a line that helps", "log/tray.log": "in ~/project",
		"log/start.log": "a line that helps", "program.json": `"Version"`,
	} {
		if !strings.Contains(files[name], wants) {
			t.Errorf("%s doesn't hold %q:\n%s", name, wants, files[name])
		}
	}
	if !strings.Contains(files["config.toml"], asServer+" = '(redacted)'") { // which is too short to be found elsewhere
		t.Error(files["config.toml"])
	}
	for _, name := range []string{"status.json", "pending.json", "doctor.json", "ledger.json", "program.json"} {
		if !json.Valid([]byte(files[name])) {
			t.Errorf("%s is no JSON any more:\n%s", name, files[name])
		}
	}
	if _, there := files["log/server.log"]; there {
		t.Error("the server's output is in it")
	}
	if text := done.Text(); !strings.Contains(text, "Look at it before you send it") || !strings.Contains(text, "--prompts") {
		t.Error(text)
	}
	for _, f := range []string{"pending.json", "ledger.json", "status.json", "config.toml"} {
		t.Logf("%s:\n%.1500s", f, files[f])
	}

	_, files = h.bundle(BundleOptions{Path: "with.tar.gz", Prompts: true})
	for name, text := range files {
		for _, s := range forms {
			if strings.Contains(text, s) {
				t.Errorf("%s holds %q", name, s)
			}
		}
	}
	for _, name := range []string{"pending.json", "log/server.log", "log/intermission.log"} {
		if !strings.Contains(files[name], "Umbrella") {
			t.Errorf("%s lacks the prompt that was asked for", name)
		}
	}
}

// TestBundleOfBadFiles: huge, binary, unreadable, links, FIFOs and what is no TOML or no database.
func TestBundleOfBadFiles(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, os.MkdirAll(h.paths.Log, 0o700))
	log := func(name string) string { return filepath.Join(h.paths.Log, name) }
	huge := strings.Repeat("x", 100) + "password cut in two " + strings.Repeat("a line\n", 400_000)
	must(t, os.WriteFile(log("intermission.log"), []byte(huge), 0o600))
	h.write("elsewhere", "the content of another file")
	must(t, os.Symlink(filepath.Join(h.dir, "elsewhere"), log("tray.log")))
	must(t, makeFIFO(log("start.log")))
	must(t, makeFIFO(h.paths.ServerRecord))
	must(t, makeFIFO(filepath.Join(h.paths.State, "environment.json")))
	must(t, makeFIFO(filepath.Join(h.dir, "environment")))
	must(t, os.WriteFile(h.paths.Ledger, []byte("no database at all"), 0o600))
	must(t, os.WriteFile(filepath.Join(h.paths.State, "program.json"), []byte{0, 0xff, 0xfe, '\n'}, 0o600))
	h.write("config.toml", "# "+plantedToken+"\n[server]\nport = 4096\nenvironment = {\n  A = \"hunter2\"\n[oh\nkey = \"\"\"a\nb hunter2\n")
	must(t, makeFIFO(filepath.Join(h.dir, "fifo")))
	done, files := h.bundle(BundleOptions{Path: "b.tgz"})
	if n := len(files["log/intermission.log"]); n > logTail || n < logTail/2 || strings.Contains(files["log/intermission.log"], "xxx") {
		t.Errorf("%d bytes of the huge log", n)
	}
	if files["config.toml"] != "(left out)\n[server]\nport = (redacted)\nenvironment = (redacted)\nA = (redacted)\n(left out)\nkey = (redacted)\n(left out)\n" {
		t.Errorf("%s", files["config.toml"])
	}
	if files["program.json"] != "\x00\xff\xfe\n" {
		t.Errorf("%q", files["program.json"])
	}
	all := strings.Join(done.Without, "\n")
	for _, s := range []string{"log/tray.log: ", "log/start.log: ", "ledger.json", "status.json and pending.json", "isn't a regular file"} {
		if !strings.Contains(all, s) {
			t.Errorf("it doesn't say that it lacks %q:\n%s", s, all)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "another file") || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestBundleIsNeverWrittenOverAnother(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	there := h.write("there.zip", "of the user")
	link := filepath.Join(h.dir, "link.zip")
	must(t, os.Symlink(there, link))
	for path, says := range map[string]string{
		"-": "standard output", "report": ".zip or .tar.gz", "": ".zip or .tar.gz", there: "--force", link: "isn't a file", h.dir + "/none/b.zip": "none",
	} {
		if _, err := Bundle(t.Context(), h.o, Report{}, BundleOptions{Path: path}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", path, err)
		}
	}
	// One that came while the doctor looked.
	if err := write(there, []byte("bundle"), false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "of the user" {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := Bundle(t.Context(), h.o, Report{}, BundleOptions{Path: there, Overwrite: true}); err != nil {
		t.Error(err)
	}
	if files := unpacked(t, there); files["README.txt"] == "" {
		t.Errorf("%q", files)
	}
}

// TestHalfASecretIsNotTaken: where a log is cut nothing of the cut line is kept.
func TestHalfASecretIsNotTaken(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.env["MY_TOKEN"] = plantedToken
	end := strings.Repeat("0123456789abcde\n", logTail/16)
	must(t, os.MkdirAll(h.paths.Log, 0o700))
	must(t, os.WriteFile(filepath.Join(h.paths.Log, "intermission.log"), []byte("x "+plantedToken+end[9:]), 0o600))
	_, files := h.bundle(BundleOptions{Path: "b.zip"})
	if strings.Contains(files["log/intermission.log"], "4711") {
		t.Error("half of the token is in it")
	}
}

func TestStatusWithoutTexts(t *testing.T) {
	t.Parallel()
	c := &collection{}
	st := control.Status{
		Server:   control.ServerStatus{Reason: "it died: said Umbrella; intermission start", LastExit: &control.Exit{Code: 1, Output: []string{" said Umbrella", ""}}},
		Sessions: control.SessionStatus{Active: []string{"ses_1"}, Working: []control.Working{{ID: "ses_1", Title: "Umbrella"}}},
	}
	text, err := json.Marshal(c.statusWithoutTexts(st))
	must(t, err)
	if strings.Contains(string(text), "Umbrella") || !strings.Contains(string(text), "ses_1") || !strings.Contains(string(text), "it died") {
		t.Errorf("%s", text)
	}
	if st.Sessions.Working[0].Title != "Umbrella" || len(st.Server.LastExit.Output) != 2 {
		t.Error("the answer itself was changed")
	}
}
