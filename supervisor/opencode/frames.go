package opencode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxFrame bounds one frame of an event stream. A longer one (a message with
// pictures in it) is skipped: nothing that we look at is long.
const maxFrame = 16 << 20

// readFrames reads server-sent events until the stream ends, and gives the data
// of each frame to handle, which must not keep it. alive is called whenever
// something came, comments included. A frame that is cut off is dropped.
//
// Own code, because go-sse ends the stream at a frame that is longer than its
// limit, hides comments, which are v2's heartbeat, and makes a string of every frame.
func readFrames(stream io.Reader, alive func(), handle func(data []byte)) error {
	in := bufio.NewReaderSize(stream, 64<<10)
	f := frame{}
	for {
		part, err := in.ReadSlice('\n')
		if len(part) > 0 {
			alive()
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			f.add(part, false)
		case err != nil:
			return err
		default:
			if data, whole := f.add(part, true); whole {
				handle(data)
			}
		}
	}
}

// frame collects the data lines of one frame.
type frame struct {
	line []byte // of the line that is being read, what came before
	data []byte
	skip bool // it is too long: ignore the rest of it
}

// add takes a piece of a line, or its end, and gives the frame's data at the blank line.
func (f *frame) add(part []byte, end bool) (data []byte, whole bool) {
	if len(f.line)+len(f.data)+len(part) > maxFrame {
		f.skip, f.line, f.data = true, append(f.line[:0], '!'), f.data[:0]
	}
	if !end || len(f.line) > 0 {
		if f.skip {
			f.line = append(f.line[:0], '!') // so that the end of this line is not taken for a blank one
		} else {
			f.line = append(f.line, part...)
		}
		if !end {
			return nil, false
		}
		part = f.line
	}
	line := bytes.TrimRight(part, "\r\n")
	f.line = f.line[:0]
	if len(line) > 0 {
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok && !f.skip {
			f.data = append(append(f.data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
		return nil, false
	}
	data, whole = bytes.TrimSuffix(f.data, []byte("\n")), len(f.data) > 0 && !f.skip
	f.release()
	return data, whole
}

// release makes room for the next frame, and gives an unusually large one back.
func (f *frame) release() {
	f.skip = false
	if cap(f.data) > 1<<20 || cap(f.line) > 1<<20 {
		f.data, f.line = nil, nil
		return
	}
	f.data = f.data[:0]
}
