package platform

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var strangeService = Service{
	Name: "intermission", Title: "Intermission", Comment: "100 % of it", Version: "1.2.3-rc.1",
	Argv: []string{"/home/zoë/my 100 % tools/intermission", "run", "--service", `a"b\c`, "$HOME and ${X}", "%h", "", "it's", ";"},
	Env:  map[string]string{"INTERMISSION_STATE_DIR": `/data/my "state" 100 % $x\y`, "A": ""},
}

func TestSystemdUnitGolden(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		s Service
		o SystemdOptions
	}{
		"packaged.service":      {s: SupervisorService("/usr/bin/intermission", "1.2.3")},
		"strange-user.service":  {s: strangeService},
		"alice-system.service":  {SupervisorService("/usr/local/bin/intermission", "1.2.3"), SystemdOptions{User: "alice", Home: "/home/alice"}},
		"dollar-system.service": {SupervisorService("/opt/$x/intermission", "1.2.3"), SystemdOptions{User: "bob", Home: "/srv/b 1%"}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			got, err := SystemdUnit(c.s, c.o)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("systemd", file), []byte(got))
		})
	}
	got, err := PackagedUnit("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("systemd", "packaged.service"), []byte(got))
}

func TestSystemdUnitRefuses(t *testing.T) {
	t.Parallel()
	good := func() Service { return SupervisorService("/usr/bin/intermission", "1") }
	for name, c := range map[string]struct {
		change func(*Service)
		o      SystemdOptions
		want   string
	}{
		"no program":       {func(s *Service) { s.Argv = nil }, SystemdOptions{}, "absolute"},
		"relative program": {func(s *Service) { s.Argv[0] = "intermission" }, SystemdOptions{}, "absolute"},
		"directory":        {func(s *Service) { s.Argv[0] = "/usr/bin/" }, SystemdOptions{}, "absolute"},
		"quoted program":   {func(s *Service) { s.Argv[0] = "/home/o'brien/i" }, SystemdOptions{}, "no quote"},
		"line break":       {func(s *Service) { s.Argv[1] = "a\nExecStartPre=/bin/evil" }, SystemdOptions{}, "control character"},
		"not UTF-8":        {func(s *Service) { s.Argv[1] = "\xff" }, SystemdOptions{}, "UTF-8"},
		"noncharacter":     {func(s *Service) { s.Argv[1] = "\ufdd0" }, SystemdOptions{}, "noncharacter"},
		"title":            {func(s *Service) { s.Title = "a\n[Service]" }, SystemdOptions{}, "control character"},
		"comment":          {func(s *Service) { s.Comment = "a\r" }, SystemdOptions{}, "control character"},
		"joined lines":     {func(s *Service) { s.Version = `1\` }, SystemdOptions{}, "backslash"},
		"variable":         {func(s *Service) { s.Env = map[string]string{"A B": "x"} }, SystemdOptions{}, "no name of a variable"},
		"value":            {func(s *Service) { s.Env = map[string]string{"A": "x\ny"} }, SystemdOptions{}, "A: "},
		"user":             {func(*Service) {}, SystemdOptions{User: "al%ice", Home: "/home/alice"}, "user"},
		"number":           {func(*Service) {}, SystemdOptions{User: "0", Home: "/root"}, "user"},
		"home":             {func(*Service) {}, SystemdOptions{User: "alice"}, "home directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := good()
			c.change(&s)
			got, err := SystemdUnit(s, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q and the error %v, want an error about %q", got, err, c.want)
			}
		})
	}
}

// TestSystemdQuoting holds the quoting against systemd's own rules, as systemdWords
// has them: what is written is what the program gets.
func TestSystemdQuoting(t *testing.T) {
	t.Parallel()
	text := rapid.StringOf(rapid.OneOf(
		rapid.RuneFrom([]rune(`$%\"'{};#:@-+! =aHé`)),
		rapid.Rune(),
	)).Filter(func(s string) bool { return systemdText(s) == nil })
	rapid.Check(t, func(t *rapid.T) {
		program := "/" + strings.NewReplacer(`"`, "", "'", "", `\`, "").Replace(text.Draw(t, "program")) + "x"
		argv := append([]string{program}, rapid.SliceOf(text).Draw(t, "argv")...)
		env := map[string]string{"A": text.Draw(t, "A"), "_b2": text.Draw(t, "_b2")}
		unit, err := SystemdUnit(Service{Argv: argv, Env: env}, SystemdOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gotArgv, gotEnv := systemdReads(t, unit, map[string]string{"HOME": "/wrong", "a": "wrong"})
		if diff := cmp.Diff(argv, gotArgv); diff != "" {
			t.Errorf("argv -want +got:\n%s\n%s", diff, unit)
		}
		if diff := cmp.Diff(env, gotEnv); diff != "" {
			t.Errorf("environment -want +got:\n%s\n%s", diff, unit)
		}
	})
}

// systemdReads is what systemd makes of a unit: src/shared/conf-parser.c,
// config_parse_exec and config_parse_environ, replace_env_argv.
func systemdReads(t *rapid.T, unit string, variables map[string]string) (argv []string, env map[string]string) {
	env = map[string]string{}
	for line := range strings.Lines(unit) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, `\`) {
			t.Fatalf("%q goes on in the next line", line)
		}
		if !utf8.ValidString(line) {
			t.Fatalf("%q is ignored", line)
		}
		if v, ok := strings.CutPrefix(line, "Environment="); ok {
			for _, word := range systemdWords(t, v) {
				name, value, _ := strings.Cut(systemdExpandSpecifiers(t, word), "=")
				env[name] = value
			}
		}
		if v, ok := strings.CutPrefix(line, "ExecStart="); ok {
			words := systemdWords(t, v)
			path, literal := strings.CutPrefix(words[0], ":")
			if strings.ContainsAny(path, `"'\`) || path[0] != '/' {
				t.Fatalf("%q is no path of a program to systemd", path)
			}
			path = systemdExpandSpecifiers(t, path)
			argv = []string{path}
			for _, word := range words[1:] {
				word = systemdExpandSpecifiers(t, word)
				if !literal {
					word = systemdExpandVariables(t, word, variables)
				}
				argv = append(argv, word)
			}
		}
	}
	return argv, env
}

// systemdWords splits as extract_first_word does with EXTRACT_UNQUOTE and EXTRACT_CUNESCAPE.
func systemdWords(t *rapid.T, line string) (words []string) {
	var word strings.Builder
	quote, in := rune(0), false
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case r == '\\':
			i++
			if i == len(runes) || runes[i] != '\\' && runes[i] != '"' {
				t.Fatalf("an escape that isn't known in %q", line)
			}
			word.WriteRune(runes[i])
			in = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, in = r, true
		case r == ' ' || r == '\t':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		case !in && r == ';' && (i+1 == len(runes) || runes[i+1] == ' '):
			t.Fatalf("another command begins in %q", line)
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		t.Fatalf("a quote without end in %q", line)
	}
	if in {
		words = append(words, word.String())
	}
	return words
}

func systemdExpandSpecifiers(t *rapid.T, s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			i++
			if i == len(s) || s[i] != '%' {
				t.Fatalf("a specifier in %q", s)
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func systemdExpandVariables(t *rapid.T, s string, variables map[string]string) string {
	// A word that is $NAME as a whole is split at spaces.
	if len(s) > 1 && s[0] == '$' && s[1] != '{' && s[1] != '$' {
		t.Fatalf("a variable as a word in %q (%q)", s, variables[s[1:]])
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '$' && i+1 < len(s) {
			switch s[i+1] {
			case '$':
				i++
			case '{':
				t.Fatalf("a variable in %q", s)
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
