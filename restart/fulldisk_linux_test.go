package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onSmallDisk names the directory on which this test binary, in a mount name space
// of its own, mounts a small disk.
const onSmallDisk = "RESTART_TEST_SMALL_DISK"

// TestADiskThatIsFullOrReadOnlyIsNotADamagedLedger on a real file system.
func TestADiskThatIsFullOrReadOnlyIsNotADamagedLedger(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), onSmallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &ended) || ended.ExitCode() == notMounted:
		if os.Getenv("CI") != "" {
			t.Fatalf("a small disk can't be mounted: %v %s", err, out)
		}
		t.Skipf("a small disk can't be mounted: %v %s", err, out)
	default:
		t.Errorf("%v\n%s", err, out)
	}
}

// notMounted is the exit status where no disk can be mounted.
const notMounted = 77

// smallDisk is the other process of the test.
func smallDisk(dir string) int {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("none", dir, "tmpfs", 0, "size=1m,mode=700"),
	); err != nil {
		fmt.Println(err)
		return notMounted
	}
	if err := useSmallDisk(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func useSmallDisk(dir string) error {
	path, fill, ctx := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "fill"), context.Background()
	l, err := Open(path, time.Now)
	if err != nil {
		return err
	}
	if err := l.BeginIncarnation(ctx, Incarnation{ID: "i", Generation: "v2", Database: "/d", StartedAt: 1}); err != nil {
		return err
	}
	if err := l.Suspend(ctx, []string{"ses_1"}, 2); err != nil {
		return err
	}

	// While it is open.
	if err := fillUp(fill); err != nil {
		return err
	}
	for n := 0; err == nil && n < 1000; n++ { // what is in the -wal file can be written over
		err = l.Suspend(ctx, []string{fmt.Sprint("ses_", n)}, 3)
	}
	if err := says("written on a full disk", err, path, "make room on the disk of "+dir); err != nil {
		return err
	}
	if err := os.Remove(fill); err != nil {
		return err
	}
	if err := l.Suspend(ctx, []string{"ses_last"}, 4); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	before, err := l.Counts(ctx)
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}

	// When it is opened.
	if err := fillUp(fill); err != nil {
		return err
	}
	_, err = Open(path, time.Now)
	if err := says("opened on a full disk", err, path, "make room on the disk of "+dir); err != nil {
		return err
	}
	_, err = Open(filepath.Join(dir, "new.db"), time.Now)
	if err := says("made on a full disk", err, "new.db", "make room on the disk of "+dir); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(fill), os.Remove(filepath.Join(dir, "new.db")), syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")); err != nil {
		return err
	}
	l, err = Open(path, time.Now) // it may be read
	if err == nil {
		err = l.Suspend(ctx, []string{"ses_1"}, 5)
		_ = l.Close()
	}
	if err := says("written on a read-only disk", err, path, "writable"); err != nil {
		return err
	}
	_, err = Open(filepath.Join(dir, "new.db"), time.Now)
	if err := says("made on a read-only disk", err, "file system is read-only", "writable"); err != nil {
		return err
	}

	// And nothing is lost.
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=1m"); err != nil {
		return err
	}
	if l, err = Open(path, time.Now); err != nil {
		return err
	}
	defer l.Close()
	if after, err := l.Counts(ctx); err != nil || after != before || after.Pending < 2 {
		return fmt.Errorf("%+v became %+v, %w", before, after, err)
	}
	return nil
}

// fillUp writes until the disk is full.
func fillUp(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk doesn't get full: %w", err)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// says makes sure that it is the disk that is said to be at fault.
func says(when string, err error, words ...string) error {
	if err == nil {
		return errors.New(when + ": no error")
	}
	for _, w := range append(words, ", then: intermission start") {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("%s: it isn't said %q: %w", when, w, err)
		}
	}
	for _, w := range []string{"damaged", "move it away", "lose"} {
		if strings.Contains(err.Error(), w) {
			return fmt.Errorf("%s: it is said %q: %w", when, w, err)
		}
	}
	fmt.Println(when, err)
	return nil
}
