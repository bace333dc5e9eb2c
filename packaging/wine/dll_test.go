package wine

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"testing"
)

// TestForwarder reads a library as Windows does, down to the names.
func TestForwarder(t *testing.T) {
	t.Parallel()
	data := forwarder("some.dll", map[string]string{"Two": "OTHER.Second", "One": "OTHER.First"})
	f, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	section, err := f.Sections[0].Data()
	if err != nil {
		t.Fatal(err)
	}
	optional, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || len(f.Sections) != 1 {
		t.Fatalf("%T, %d sections", f.OptionalHeader, len(f.Sections))
	}
	at := func(address uint32) []byte { return section[address-sectionAddress:] }
	text := func(address uint32) string {
		s, _, _ := bytes.Cut(at(address), []byte{0})
		return string(s)
	}
	exports := optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT]
	var d exportDirectory
	if _, err := binary.Decode(at(exports.VirtualAddress), binary.LittleEndian, &d); err != nil {
		t.Fatal(err)
	}
	if text(d.Name) != "some.dll" || d.NumberOfFunctions != 2 || d.NumberOfNames != 2 {
		t.Errorf("%s: %+v", text(d.Name), d)
	}
	for i, want := range [][2]string{{"One", "OTHER.First"}, {"Two", "OTHER.Second"}} {
		name := text(binary.LittleEndian.Uint32(at(d.Names)[4*i:]))
		ordinal := binary.LittleEndian.Uint16(at(d.NamesToOrdinals)[2*i:])
		function := binary.LittleEndian.Uint32(at(d.Functions)[4*ordinal:])
		if name != want[0] || text(function) != want[1] {
			t.Errorf("%s is %s, want %s", name, text(function), want)
		}
		if function < exports.VirtualAddress || function >= exports.VirtualAddress+exports.Size {
			t.Errorf("%s is a function and no forwarder", name)
		}
	}
}
