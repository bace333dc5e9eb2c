package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// What is ours: configuration, directories, the running supervisor, its socket and
// locks, the logs.

func (p *patient) loadConfig() (supervisor.Config, error) {
	// The supervisor would wait for the writer of a FIFO; the doctor doesn't.
	_, cut, err := platform.ReadTail(p.paths.ConfigFile, maxConfig, true)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.Getenv("INTERMISSION_CONFIG") == "":
		return supervisor.DefaultConfig(), nil
	case err != nil:
		return supervisor.Config{}, fmt.Errorf("cannot read the configuration: %w; mend it, or remove it to go by the defaults", err)
	case cut:
		return supervisor.Config{}, fmt.Errorf("%s: larger than %d bytes; is it the right file?", p.paths.ConfigFile, maxConfig)
	}
	return supervisor.LoadConfig(p.paths.ConfigFile)
}

// maxConfig is the size that the supervisor takes, in bytes.
const maxConfig = 1 << 20

func (p *patient) checkConfiguration(context.Context) Check {
	switch {
	case p.noPaths != nil:
		detail, act := split(p.noPaths)
		return failed(act, "%s", detail)
	case p.noConfig != nil:
		// Each fault is a line of its own, with file, line and key.
		detail := strings.ReplaceAll(p.noConfig.Error(), "\n", " | ")
		return failed("edit "+p.paths.ConfigFile+", then: intermission service restart", "%s", detail)
	}
	if _, err := os.Stat(p.paths.ConfigFile); errors.Is(err, fs.ErrNotExist) {
		return ok("the defaults: %s isn't there", p.paths.ConfigFile)
	}
	return ok("%s", p.paths.ConfigFile)
}

func (p *patient) checkDirectories(context.Context) Check {
	if p.noPaths != nil {
		detail, act := split(p.noPaths)
		return failed(act, "%s", detail)
	}
	missing := ""
	for _, dir := range []string{p.paths.State, p.paths.Log, p.paths.Runtime} {
		err := platform.CheckPrivate(dir)
		if errors.Is(err, fs.ErrNotExist) {
			missing = "; what isn't there is made at the first start"
			continue
		}
		if err == nil {
			if err = platform.CheckWritable(dir); err != nil {
				return refused("let the directory be writable to you: chmod 700 "+dir, dir, err)
			}
			continue
		}
		detail, act := split(err)
		return failed(act, "%s", detail)
	}
	dirs := slices.Compact([]string{p.paths.State, p.paths.Runtime}) // they may be one
	return ok("%s%s", strings.Join(dirs, ", "), missing)
}

// statusTimeout bounds the question to the supervisor.
const statusTimeout = 5 * time.Second

func (p *patient) askStatus(ctx context.Context) (control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	client := control.Dial(p.paths.LiveSocket())
	defer client.Close()
	return client.Status(ctx)
}

// none tells whether the supervisor isn't running.
func none(err error) bool { return control.AsError(err).Code == control.CodeNoSupervisor }

func (p *patient) checkSupervisor(context.Context) Check {
	st, err := p.status()
	if err != nil && none(err) {
		s, noService := p.service()
		switch {
		case p.root && noService == nil && s.Running && s.User != "":
			return skipped("pid %d runs, and answers %s alone; as %s: intermission doctor", s.PID, s.User, s.User)
		case p.root:
			return warning(asUser, "not running for root, which should have none")
		case noService != nil || !s.Installed:
			return failed(p.installAct(), "not running")
		}
		return failed(p.startAct(), "not running")
	}
	if err != nil {
		detail, act := split(err)
		return failed(act, "%s", detail)
	}
	s := st.Supervisor
	if s.Version != p.Version {
		return warning("intermission service restart", "pid %d is of version %s, and this program of %s", s.PID, s.Version, p.Version)
	}
	return ok("pid %d, version %s, since %s", s.PID, s.Version, s.Since.Local().Format(time.DateTime))
}

func (p *patient) checkSocket(ctx context.Context) Check {
	path := p.paths.LiveSocket()
	conn, err := platform.Dial(ctx, path)
	if err == nil {
		_ = conn.Close()
		if _, err := p.status(); err != nil {
			return failed("intermission service restart", "%s is connected to, but: %v", path, err)
		}
		return ok("%s answers, and is open to nobody else", path)
	}
	if !errors.Is(err, platform.ErrNoListener) {
		detail, act := split(err)
		return failed(act, "%s", detail)
	}
	if _, err := os.Lstat(path); err == nil {
		return warning(p.startAct(), "%s is left over from a supervisor that was killed; the next start replaces it", path)
	}
	return skipped("no supervisor is running")
}

func (p *patient) checkInstanceLock(context.Context) Check {
	look, err := platform.LookAtLock(p.instanceLock())
	if err != nil {
		return failed("make the file readable, or remove it while no supervisor runs", "%s", err)
	}
	st, err := p.status()
	switch {
	case look.Held && err == nil && (look.PID == 0 || look.PID == st.Supervisor.PID):
		return ok("held by the supervisor")
	case look.Held && err == nil:
		return warning(fmt.Sprintf("look at process %d", look.PID), "held by %s, and not by the supervisor that answers (pid %d)", holder(look), st.Supervisor.PID)
	case look.Held:
		return failed(endAct(look), "held by %s, but no supervisor answers", holder(look))
	case err == nil:
		return warning("intermission service restart", "free, although a supervisor answers (pid %d): it has another runtime directory, or lost the lock file", st.Supervisor.PID)
	}
	return ok("free")
}

// instanceLock is the lock of the supervisor that is asked: one that a system unit
// keeps has no runtime directory of a login, and its lock lies beside its socket.
func (p *patient) instanceLock() string {
	live := p.paths.LiveSocket()
	if live == p.paths.Socket || !filepath.IsAbs(live) {
		return p.paths.InstanceLock
	}
	if _, err := p.status(); err != nil {
		return p.paths.InstanceLock // the record is of one that has ended
	}
	return filepath.Join(filepath.Dir(live), filepath.Base(p.paths.InstanceLock))
}

func holder(l platform.LockLook) string {
	switch {
	case l.PID == 0:
		return "a process that isn't known"
	case l.Name == "":
		return fmt.Sprintf("pid %d", l.PID)
	}
	return fmt.Sprintf("%s (pid %d)", l.Name, l.PID)
}

// endAct is how a person ends a process that stands in the way.
func endAct(l platform.LockLook) string {
	if l.PID == 0 {
		return "find the process that holds the lock, and end it if it hangs"
	}
	return fmt.Sprintf("see that process %d is no longer wanted, and end it: kill %d", l.PID, l.PID)
}

// logSlack is what a log may be over its bound: it is cut only after it has grown past it.
const logSlack = 1.25

func (p *patient) checkLogs(context.Context) Check {
	entries, err := os.ReadDir(p.paths.Log)
	if errors.Is(err, fs.ErrNotExist) {
		return ok("none yet")
	}
	if err != nil {
		return refused("chmod 700 "+p.paths.Log, p.paths.Log, fmt.Errorf("cannot read the directory of the logs: %w", err))
	}
	sizes, total := map[string]int64{}, int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		stem, _, _ := strings.Cut(e.Name(), ".")
		for _, name := range []string{"intermission", "tray"} { // what was rotated has its time in the name
			if strings.HasPrefix(stem, name+"-") {
				stem = name
			}
		}
		sizes[stem] += info.Size()
		total += info.Size()
	}
	bound := p.config.Log.MaxSize * int64(p.config.Log.Keep+1)
	for stem, size := range sizes {
		if float64(size) > float64(bound)*logSlack+(1<<20) {
			return warning("remove what you don't need of "+filepath.Join(p.paths.Log, stem+"*")+", then: intermission service restart",
				"%s has %s, more than [log] max_size and keep allow (%s)", stem, size1(size), size1(bound))
		}
	}
	return ok("%s in %s; each may have %s", size1(total), p.paths.Log, size1(bound))
}

func size1(n int64) string { return humanize.Bytes(uint64(max(0, n))) }

// refused is a failure to write or read below dir. A disk that is read-only, full or
// failing isn't mended by a mode.
func refused(act, dir string, err error) Check {
	switch {
	case errors.Is(err, syscall.EROFS):
		act = "mount the file system of " + dir + " writable (see: findmnt -T " + dir + "), then: intermission start"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		act = "make room on the disk of " + dir + ", then: intermission start"
	case errors.Is(err, syscall.EIO):
		act = "see that the disk of " + dir + " is sound"
	}
	return failed(act, "%s", err)
}

// split parts an error of ours from the act that stands at its end.
func split(err error) (detail, act string) {
	detail = err.Error()
	at := strings.LastIndex(detail, "; ")
	if at < 0 {
		return detail, "see: intermission logs, and intermission.log beside it"
	}
	act = detail[at+2:]
	for _, word := range []string{"→ ", "then: ", "run: "} {
		act = strings.TrimPrefix(act, word)
	}
	return detail[:at], act
}

// maxBrief bounds the reason in a check that isn't the one about its subject, in characters.
const maxBrief = 160

// brief is split for a check that only quotes: a long reason is cut, for the check
// about its subject has all of it.
func brief(err error) (detail, act string) {
	detail, act = split(err)
	return cut(detail), act
}

func cut(detail string) string {
	detail = firstLine(detail)
	if at := strings.Index(detail, "; looked in "); at >= 0 {
		detail = detail[:at]
	}
	return restart.PlainText(detail, maxBrief)
}
