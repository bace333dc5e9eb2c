package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tries are command lines and what completes their last word.
var tries = []struct{ line, want string }{
	{"serv", "service"},
	{"service ", "install stop"},
	{"service install --a", "--as"},
	{"service install --as t", "task"},
	{"--json sho", "show"},
	{"show --a", "--at"},
	{"completion z", "zsh"},
	{"secr", ""},
}

func scriptOf(t *testing.T, shell, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(Completion(model(t), shell)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBashCompletes(t *testing.T) {
	t.Parallel()
	bash, script := tool(t, "bash", "bash"), scriptOf(t, "bash", "intermission")
	for _, tt := range tries {
		out, err := exec.Command(bash, "-c", `source "$0"; COMP_WORDS=(intermission $1); [[ $1 != *' ' ]] || COMP_WORDS+=('')
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _intermission; echo ${COMPREPLY[*]}`, script, tt.line).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("intermission %s: %q, %v; want %q", tt.line, got, err, tt.want)
		}
	}
}

func TestFishCompletes(t *testing.T) {
	t.Parallel()
	fish, script := tool(t, "fish", "fish"), scriptOf(t, "fish", "intermission.fish")
	home := t.TempDir()
	for _, tt := range tries {
		cmd := exec.Command(fish, "--no-config", "-c", `source $argv[1]; complete -C "intermission $argv[2]"`, script, tt.line)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "XDG_CACHE_HOME="+home)
		out, err := cmd.CombinedOutput()
		var got []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("intermission %s: %q, %v; want %q", tt.line, got, err, tt.want)
		}
	}
}

// zshTry types into a zsh that has a terminal, and prints what then stands there.
const zshTry = `
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PROMPT= RPROMPT= ; unsetopt zle_bracketed_paste; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; $2; echo REA''DY"
zpty -r -m z out '*READY*'
zpty -w -n z "intermission $3"$'\t'
zpty -w -n z $'\x18\x0d'
zpty -w -n z $'\x01'"print -r -- '<"$'\x05'">'"$'\n'
zpty -r -m z out '*<intermission*>*'
print -r -- $out
zpty -d z
`

func TestZshCompletes(t *testing.T) {
	t.Parallel()
	zsh := tool(t, "zsh", "zsh")
	script := scriptOf(t, "zsh", "_intermission")
	for name, setup := range map[string]string{"from fpath": ":", "sourced": "source " + script} {
		for _, tt := range tries {
			if tt.want == "" || strings.Contains(tt.want, " ") || name == "sourced" && tt.line != "serv" {
				continue // a list is drawn below the line; the script is bash's, which is tried in full
			}
			dir := filepath.Dir(script)
			if name == "sourced" {
				dir = t.TempDir()
			}
			out, err := exec.Command(zsh, "-f", "-c", zshTry, "try", dir, setup, tt.line).CombinedOutput()
			before := tt.line[:strings.LastIndex(" "+tt.line, " ")]
			if want := "<intermission " + before + tt.want; err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: intermission %s: %v, %q; want %q", name, tt.line, err, out, want)
			}
		}
	}
}
