package opencode

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func framesOf(t *testing.T, stream io.Reader) (frames []string, alive int) {
	t.Helper()
	err := readFrames(stream, func() { alive++ }, func(data []byte) { frames = append(frames, string(data)) })
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return frames, alive
}

func TestReadFrames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	huge := strings.Repeat("y", maxFrame)
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"one":                     {"data: {}\n\n", []string{"{}"}},
		"no space":                {"data:{}\n\n", []string{"{}"}},
		"carriage returns":        {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"several lines":           {"data: a\ndata: b\n\n", []string{"a\nb"}},
		"comments":                {": heartbeat\n\n: x\ndata: a\n\n\n\n", []string{"a"}},
		"other fields":            {"event: e\nid: 1\nretry: 5\ndata: a\n\nevent: none\n\n", []string{"a"}},
		"cut off":                 {"data: a\n\ndata: {\"half", []string{"a"}},
		"cut off after the line":  {"data: a\n\ndata: b\n", []string{"a"}},
		"longer than the buffer":  {"data: " + long + "\n\ndata: b\n\n", []string{long, "b"}},
		"too long":                {"data: a\n\ndata: " + huge + "\n\ndata: b\n\n", []string{"a", "b"}},
		"too long in many lines":  {strings.Repeat("data: "+long+"\n", maxFrame/len(long)+1) + "\ndata: b\n\n", []string{"b"}},
		"too long, then on":       {"data: " + huge + "\ndata: rest\n\ndata: b\n\n", []string{"b"}},
		"too long, buffer's edge": {"data: " + huge + strings.Repeat("z", 64<<10-6) + "\ndata: " + strings.Repeat("z", 64<<10-6) + "\ndata: no\n\ndata: b\n\n", []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := framesOf(t, strings.NewReader(c.stream)); !slices.Equal(got, c.want) {
				t.Errorf("got %d frames, want %d", len(got), len(c.want))
			}
			if len(c.stream) < 1<<20 {
				if got, _ := framesOf(t, iotest.OneByteReader(strings.NewReader(c.stream))); !slices.Equal(got, c.want) {
					t.Errorf("byte by byte: got %d frames, want %d", len(got), len(c.want))
				}
			}
		})
	}
}

func TestReadFramesTellsOfComments(t *testing.T) {
	t.Parallel()
	if _, alive := framesOf(t, strings.NewReader(": heartbeat\n\n")); alive == 0 {
		t.Error("a heartbeat went unnoticed")
	}
}

func TestReadFramesKeepsNoLargeBuffer(t *testing.T) {
	t.Parallel()
	var f frame
	f.add([]byte("data: "+strings.Repeat("x", 4<<20)+"\n"), true)
	if data, whole := f.add([]byte("\n"), true); !whole || len(data) != 4<<20 {
		t.Fatalf("got %d bytes", len(data))
	}
	if cap(f.data) > 1<<20 {
		t.Errorf("keeps %d bytes", cap(f.data))
	}
}

func BenchmarkDecode(b *testing.B) {
	frame := []byte(`{"id":"evt_22cd0df93001Y8WgqEw7C0Ww6F","created":1796048215955,"type":"session.text.delta","location":{"directory":"/home/user/proj1"},"data":{"sessionID":"ses_dd32f2626ffeTcpuq68SUXDbf4","assistantMessageID":"msg_22cd0df7b0015FbzlDKbDZiIX6","ordinal":0,"delta":"tok1 "}}`)
	api := &v2{}
	for b.Loop() {
		api.decode(frame, discard)
	}
}
