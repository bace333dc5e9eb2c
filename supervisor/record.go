package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/opencode"
)

// record is what the next supervisor needs to take over a server that outlived
// this one: who it is, beyond its pid, and how to talk to it. It holds the
// password, so the file has mode 0600.
type record struct {
	opencode.Incarnation
	Identity platform.Identity `json:"identity"`          // of the server; until it is ready, of what we started
	Spawned  platform.Identity `json:"spawned"`           // of what we started; zero when somebody else did
	Program  string            `json:"program,omitempty"` // version that the program told which we started
	Mark     string            `json:"mark"`              // of what we started, in its environment; "" when somebody else did
	Ready    bool              `json:"ready"`             // false: it was being started
	Since    int64             `json:"since"`             // Unix milliseconds; nothing of it is older
	Output   int64             `json:"output"`            // where its output begins in the log
	Places   map[string]string `json:"places"`            // what decided where its files are; nil not known
}

// version is that of the server's program. What the program says of itself counts,
// where we started it: the server may say it otherwise.
func (r record) version() string {
	if r.Program != "" {
		return r.Program
	}
	return r.Version
}

// ours says that this supervisor, or an earlier one, started it.
func (r record) ours() bool { return r.Mark != "" }

// marker is the entry in the environment of everything that the server starts,
// by which processes that it left behind are known to be ours.
func (r record) marker() string {
	if r.Mark == "" {
		return ""
	}
	return opencode.Marker + "=" + r.Mark
}

// owns tells whether pid is what we started or descends from it: a shim may stand between.
func (r record) owns(pid int) bool {
	if pid == r.Spawned.PID {
		return true
	}
	tree, err := platform.Tree(context.Background(), r.Spawned, r.marker())
	return err == nil && slices.ContainsFunc(tree, func(id platform.Identity) bool { return id.PID == pid })
}

// maxRecord bounds each of the small files of our own state, in bytes.
const maxRecord = 1 << 20

// loadRecord reads the record at path; a file that is absent, cut off or none of ours is none.
func loadRecord(path string) (record, bool) {
	var r record
	b, err := platform.ReadSmall(path, maxRecord)
	if err != nil || json.Unmarshal(b, &r) != nil || r.ID == "" {
		return record{}, false
	}
	return r, true
}

// LivingServer gives the process of the recorded server if it lives, whoever
// supervises it, or nobody: a server outlives a supervisor that is killed.
func LivingServer(paths platform.Paths) (pid int, ok bool) {
	r, ok := loadRecord(paths.ServerRecord)
	if !ok || !r.Identity.Alive() {
		return 0, false
	}
	return r.Identity.PID, true
}

func (r record) save(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := platform.WriteFileAtomic(path, b); err != nil {
		return fmt.Errorf("cannot record the server: %w", restart.ExplainServers(path, err))
	}
	return nil
}

// programFile is where the program is remembered that was found last.
func programFile(state string) string { return filepath.Join(state, "program.json") }

// saveProgram remembers the program without its environment, which may hold secrets.
func saveProgram(state string, i *opencode.Install) error {
	remembered := *i
	remembered.Env = nil
	b, err := json.Marshal(remembered)
	if err != nil {
		return err
	}
	return platform.WriteFileAtomic(programFile(state), b)
}

// loadProgram gives the program that was found last, in environment env; nil when none is remembered.
func loadProgram(state string, env []string) *opencode.Install {
	b, err := platform.ReadSmall(programFile(state), maxRecord)
	if err != nil {
		return nil
	}
	var i opencode.Install
	if json.Unmarshal(b, &i) != nil || i.Generation == "" {
		return nil
	}
	i.Env = env
	return &i
}

func removeRecord(path string) {
	// A record that stays is told by its identity to be of a dead process.
	_ = os.Remove(path)
}

// wishFile is where the wish is durable, beside the ledger.
func wishFile(state string) string { return filepath.Join(state, "wish") }

// loadWish reads the wish; WishRunning where none was ever said.
func loadWish(state string) (Wish, error) {
	b, err := platform.ReadSmall(wishFile(state), maxRecord)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WishRunning, nil
	case err != nil:
		return "", fmt.Errorf("cannot read the wish: %w; remove %s, or run: intermission start", err, wishFile(state))
	}
	if w := Wish(bytes.TrimSpace(b)); w == WishRunning || w == WishStopped {
		return w, nil
	}
	return "", fmt.Errorf("%s holds neither %q nor %q; remove it, or run: intermission start", wishFile(state), WishRunning, WishStopped)
}

func saveWish(state string, w Wish) error {
	if err := platform.WriteFileAtomic(wishFile(state), []byte(w)); err != nil {
		return fmt.Errorf("cannot make the wish durable: %w", restart.ExplainServers(wishFile(state), err))
	}
	return nil
}
