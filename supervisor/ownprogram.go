package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"intermission/platform"
	"intermission/restart"
)

// ThisProgram is the path by which this program was started, as its installer
// replaces it: symbolic links stand in it as they are. "" when it can't be told.
func ThisProgram() string {
	running, err := os.Executable()
	if err != nil {
		return ""
	}
	if named, err := exec.LookPath(os.Args[0]); err == nil {
		if named, err = filepath.Abs(named); err == nil && sameFile(named, running) {
			return named
		}
	}
	return running
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// own is what is known of our own program's file. It belongs to watchOwn.
type own struct {
	running os.FileInfo   // what we are
	judged  os.FileInfo   // what was last looked into
	failed  int           // fruitless looks at it
	config  chan struct{} // holds one when the configuration is to be watched too
}

// versionPatience is how long a new program may take to tell its version.
const versionPatience = 5 * time.Second

// watchOwn notices when our own program is replaced, until the supervisor ends.
func (s *supervisor) watchOwn() {
	running, err := os.Stat(s.Program)
	if err != nil {
		s.Log.Warn("an upgrade of intermission will not be noticed", "error", err)
		return
	}
	o := &own{running: running, judged: running, config: make(chan struct{}, 1)}
	err = replacement{
		files: func() []string {
			if s.heldBack() {
				return []string{s.Program, s.Paths.ConfigFile}
			}
			return []string{s.Program}
		},
		again:  o.config,
		settle: s.Policy.Settle,
		look:   func() time.Duration { return s.lookAtOwn(o) },
	}.watch(s.life)
	if err != nil {
		s.Log.Warn("an upgrade of intermission will not be noticed", "error", err)
	}
}

// unchanged tells whether a file is the one that it was.
func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// lookAtOwn finds out whether another intermission is in our place that can be used.
// One that can't be changes nothing.
func (s *supervisor) lookAtOwn(o *own) time.Duration {
	now, err := os.Stat(s.Program)
	if err != nil {
		return 0 // it comes back, or it doesn't
	}
	if unchanged(now, o.running) {
		o.judged = now
		s.setNewer("", nil)
		return 0
	}
	if unchanged(now, o.judged) && o.failed == 0 {
		if s.heldBack() && s.startable() == nil { // what kept it is mended
			s.mu.Lock()
			to := s.newerFile
			s.mu.Unlock()
			s.workers.Go(func() { s.giveWay(to, o.config) })
		}
		return 0
	}
	if !unchanged(now, o.judged) {
		o.judged, o.failed = now, 0
	}
	version, err := askVersion(s.life, s.Program)
	if err != nil {
		if o.failed == 0 && s.life.Err() == nil {
			s.Log.Warn("intermission was replaced by what can't be used", "program", s.Program, "error", err)
		}
		s.setNewer("", nil)
		pause := retry(o.failed)
		if o.failed++; pause == 0 {
			o.failed = 0 // until it changes
		}
		return pause
	}
	o.failed = 0
	s.setNewer(version, now)
	if !s.Manager.Restarts() {
		s.Log.Info("another intermission is in place; it is used once this one is restarted: intermission service restart", "version", version, "is", s.Version)
		return 0
	}
	s.Log.Info("another intermission is in place; handing over to it", "version", version, "is", s.Version)
	s.workers.Go(func() { s.giveWay(now, o.config) })
	return 0
}

// heldBack says that the configuration keeps the program in our place from taking over.
func (s *supervisor) heldBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits != ""
}

// setWaits notes why the program in our place doesn't take over; "" for nothing.
func (s *supervisor) setWaits(why string) {
	s.mu.Lock()
	was := s.waits
	s.waits = why
	s.mu.Unlock()
	if was != why {
		s.notify()
	}
}

// setNewer notes which intermission is in our place; "" for none but us.
func (s *supervisor) setNewer(version string, file os.FileInfo) {
	s.mu.Lock()
	was := s.newer
	s.newer, s.newerFile, s.waits = version, file, ""
	s.mu.Unlock()
	if was != version {
		s.notify()
	}
}

// giveWay hands over to the program in our place when no act and no consent is under
// way, unless it is replaced again before that. Where the configuration is what keeps
// it, that is shown, and refused has it watched.
func (s *supervisor) giveWay(to os.FileInfo, refused chan<- struct{}) {
	for {
		s.mu.Lock()
		changed, busy, outdated := s.changed, s.busy() || s.keepsLock(), s.newerFile != to
		s.mu.Unlock()
		if outdated {
			return
		}
		wait, again := busy, time.Duration(0)
		if !busy {
			wait, again = s.undecided()
		}
		if !wait {
			if now, err := os.Stat(s.Program); err != nil || !unchanged(now, to) {
				return // that is about to be looked at
			}
			if err := s.handOverNow(s.life); !errors.Is(err, errBusy) {
				if err == nil || s.life.Err() != nil {
					return
				}
				s.Log.Warn("the other intermission is not used", "error", err)
				if err := s.startable(); err != nil {
					s.setWaits(err.Error())
					select {
					case refused <- struct{}{}:
					default: // it is told already
					}
				}
				return
			}
		}
		pause := tick(again)
		select {
		case <-changed:
		case <-pause.due:
		case <-s.life.Done():
		}
		pause.stop()
		if s.life.Err() != nil {
			return
		}
	}
}

// askVersion has an intermission tell its version, which shows that it can be executed.
func askVersion(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer reader.Close()
	child, err := platform.Start(platform.Spec{Argv: []string{program, "version", "--json"}, Env: os.Environ(), Output: writer})
	_ = writer.Close()
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = child.Identity().Signal(platform.Kill)
		_ = reader.SetReadDeadline(time.Now()) // what it has started may hold the other end
	})
	defer stop()
	text, _ := io.ReadAll(io.LimitReader(reader, 4<<10))
	_ = reader.Close() // it may have more to say, which nobody reads
	exit := child.Wait()
	var said struct{ Version string }
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("it does not tell its version: %w", ctx.Err())
	case exit != platform.Exit{}:
		return "", fmt.Errorf("it does not tell its version, but exits with status %d %s", exit.Code, exit.Signal)
	case json.Unmarshal(text, &said) != nil || said.Version == "":
		return "", fmt.Errorf("it says %q instead of its version", restart.PlainText(string(text), 80))
	}
	return restart.PlainText(said.Version, 80), nil
}
