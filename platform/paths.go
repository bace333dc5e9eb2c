package platform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Paths is every path of ours. All are absolute.
type Paths struct {
	ConfigFile   string // config.toml; need not exist
	State        string // directory: ledger, durable wish, server record
	Log          string // directory: our log and the server's output
	Runtime      string // directory: socket, instance lock; may be State
	Ledger       string // the ledger's database
	Socket       string // local API; on Windows the name of a pipe
	InstanceLock string // held by the one supervisor
	ServerRecord string // what is needed to adopt the running server
}

// SocketRecord is the file in which the supervisor says which socket it listens on; written anew at each start.
func (p Paths) SocketRecord() string { return filepath.Join(p.State, "socket") }

// RecordSocket says in the state directory which socket is listened on, for those
// whose environment has another runtime directory (cron, su, ssh). The file is
// made anew each time, also with the same content: who watches the directory
// learns by it, on every system, that a supervisor came up.
func (p Paths) RecordSocket() error {
	return WriteFileAtomic(p.SocketRecord(), []byte(p.Socket))
}

// LiveSocket is the socket to dial: ours, or where none is there the recorded one.
func (p Paths) LiveSocket() string {
	if _, err := os.Stat(p.Socket); err == nil {
		return p.Socket
	}
	if b, err := readSmall(p.SocketRecord()); err == nil && len(b) > 0 {
		return string(b)
	}
	return p.Socket
}

// The variables that move our directories. Each must be absolute.
const (
	envConfig  = "INTERMISSION_CONFIG"
	envState   = "INTERMISSION_STATE_DIR"
	envRuntime = "INTERMISSION_RUNTIME_DIR"
)

// app is the name of our directory below the system's own.
const app = "intermission"

// directories is where a system keeps an application's files. An empty field is not known.
type directories struct{ config, state, log, runtime string }

// FindPaths computes our paths from an environment; it touches no file.
// (adrg/xdg would read the process's own environment and nothing else, so the
// few rules of the XDG base directory specification 0.8 are kept here.)
//
// A relative override is an error, and so is a socket path that is longer than
// the system allows.
func FindPaths(getenv func(string) string) (Paths, error) {
	d := defaultDirectories(getenv)
	configFile := ""
	if d.config != "" {
		configFile = filepath.Join(d.config, "config.toml")
	}
	for _, o := range []struct {
		name string
		set  func(string)
	}{
		{envConfig, func(v string) { configFile = v }},
		{envState, func(v string) { d.state, d.log = v, filepath.Join(v, "log") }},
		{envRuntime, func(v string) { d.runtime = v }},
	} {
		v := getenv(o.name)
		if v == "" {
			continue
		}
		if !filepath.IsAbs(v) {
			return Paths{}, fmt.Errorf("%s is %q, which is relative; set it to an absolute path", o.name, v)
		}
		o.set(filepath.Clean(v))
	}
	if configFile == "" || d.state == "" {
		return Paths{}, errors.New("cannot find the home directory; set " + homeVariable)
	}
	if d.runtime == "" {
		d.runtime = d.state
	}
	socket, err := socketName(d)
	if err != nil {
		return Paths{}, err
	}
	return Paths{
		ConfigFile:   configFile,
		State:        d.state,
		Log:          d.log,
		Runtime:      d.runtime,
		Ledger:       filepath.Join(d.state, "ledger.db"),
		Socket:       socket,
		InstanceLock: filepath.Join(d.runtime, "instance.lock"),
		ServerRecord: filepath.Join(d.state, "server.json"),
	}, nil
}
