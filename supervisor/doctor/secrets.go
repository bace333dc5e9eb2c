package doctor

import (
	"encoding/json"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// secretVariable is how a variable that holds a secret is called.
var secretVariable = regexp.MustCompile(`(?i)KEY|TOKEN|SECRET|PASSW|AUTH|CREDENTIAL|COOKIE|PASSPHRASE`)

// findSecrets collects what may stand in what we write or log, and must not be
// sent: passwords of servers, keys of providers, variables that are called so.
func (p *patient) findSecrets() secrets {
	s := secrets{user: p.Getenv("USER")}
	if u, err := user.Current(); err == nil {
		s.homes = append(s.homes, u.HomeDir)
		// On Windows the name has the domain before it.
		s.user = u.Username[strings.LastIndexByte(u.Username, '\\')+1:]
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if home := p.Getenv(name); home != "" {
			s.homes = append(s.homes, home)
		}
	}
	for _, home := range s.homes {
		if real, err := filepath.EvalSymlinks(home); err == nil {
			s.homes = append(s.homes, real)
		}
	}
	for _, entry := range append(append(os.Environ(), p.Process...), p.environ()...) {
		name, value, _ := strings.Cut(entry, "=")
		s.addVariable(name, value)
	}
	for name, value := range p.config.Server.Environment {
		s.addVariable(name, value)
		if !strings.ContainsRune(value, filepath.Separator) && len(value) >= textLeast {
			s.known = append(s.known, value)
		}
	}
	for i, arg := range p.config.Server.Command {
		if i > 0 && strings.HasPrefix(p.config.Server.Command[i-1], "-") && secretVariable.MatchString(p.config.Server.Command[i-1]) {
			s.known = append(s.known, arg)
		}
	}
	for _, path := range p.environmentFiles() {
		text, _, _ := platform.ReadTail(path, maxConfig, true)
		for _, entry := range assignment.FindAllStringSubmatch(string(text), -1) {
			value := entry[2]
			if plain, err := strconv.Unquote(`"` + value + `"`); err == nil {
				value = plain // the one file is JSON
			}
			s.addVariable(entry[1], strings.Trim(value, `"'`))
		}
	}
	for _, path := range p.secretFiles() {
		s.addFile(path)
	}
	return s
}

// assignment is NAME=VALUE, as a line or as a string of JSON.
var assignment = regexp.MustCompile(`(?m)(?:^\s*|")(\w+)=((?:\\.|[^"\\\n])*|"[^"\n]*")`)

func (s *secrets) addVariable(name, value string) {
	if secretVariable.MatchString(name) {
		s.known = append(s.known, value)
	}
	// An address with a password: of a proxy, a registry, a database. A proxy's may lack the scheme.
	for word := range strings.FieldsSeq(value) {
		_, rest, found := strings.Cut(word, "://")
		if !found && !isProxy(name) {
			continue
		}
		if !found {
			rest = word
		}
		at := strings.LastIndexByte(rest, '@')
		if at < 0 {
			continue
		}
		_, password, both := strings.Cut(rest[:at], ":")
		s.known = append(s.known, rest[:at])
		if both {
			s.known = append(s.known, password)
			if plain, err := url.PathUnescape(password); err == nil {
				s.known = append(s.known, plain)
			}
		}
	}
}

// secretFiles are the files that hold secrets: our record of the server, the
// server's registrations and service configuration, and its providers' keys.
func (p *patient) secretFiles() []string {
	install := opencode.Install{Env: p.environ(), Generation: opencode.V2}
	files, _ := filepath.Glob(filepath.Join(install.RegistrationDir(), "service*.json")) // no pattern is no file
	files = append(files, p.paths.ServerRecord)
	if database, err := install.DatabasePath(); err == nil {
		data := filepath.Dir(database)
		files = append(files, filepath.Join(data, "auth.json"), filepath.Join(data, "mcp-auth.json"))
	}
	config := ""
	for _, entry := range install.Env {
		if dir, found := strings.CutPrefix(entry, "XDG_CONFIG_HOME="); found {
			config = dir
		}
	}
	if config == "" {
		config = filepath.Join(install.Home(), ".config")
	}
	return append(files, filepath.Join(config, "opencode", "service.json"))
}

// publicKeys are what those files hold beside secrets.
var publicKeys = map[string]bool{
	"id": true, "generation": true, "version": true, "url": true, "hostname": true, "mark": true, "type": true,
	"start": true, "boot": true, "serverUrl": true, "scope": true,
	// Where the server's files are, in our record of it. To take them out would take
	// the home directory out of all else, which is shown as ~.
	"HOME": true, "USERPROFILE": true, "XDG_DATA_HOME": true, "XDG_STATE_HOME": true,
	"OPENCODE_DB": true, "OPENCODE_DISABLE_CHANNEL_DB": true,
}

func (s *secrets) addFile(path string) {
	const most = 256 << 10
	text, _, err := platform.ReadTail(path, most, true)
	if err != nil {
		return
	}
	var content any
	if json.Unmarshal(text, &content) != nil {
		// One that was cut off holds its password all the same.
		for _, m := range cutPassword.FindAllSubmatch(text, -1) {
			s.known = append(s.known, string(m[1]))
		}
		return
	}
	s.addValues("", content)
}

var cutPassword = regexp.MustCompile(`"password"\s*:\s*"([^"]*)`)

func (s *secrets) addValues(key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, v := range v {
			s.addValues(key, v)
		}
	case []any:
		for _, v := range v {
			s.addValues(key, v)
		}
	case string:
		if publicKeys[key] {
			s.addVariable(key, v) // an address may hold a password even so
		} else if len(v) >= textLeast || secretVariable.MatchString(key) {
			s.known = append(s.known, v)
		}
	}
}
