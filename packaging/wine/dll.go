package wine

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"maps"
	"slices"
)

// Layout of the library that forwarder makes: its headers, and one section.
const (
	fileAlignment    = 0x200
	sectionAlignment = 0x1000
	sectionAddress   = sectionAlignment // of the only section, relative to the library
)

// exportDirectory is IMAGE_EXPORT_DIRECTORY. Its addresses are relative to the library.
type exportDirectory struct {
	Characteristics, TimeDateStamp    uint32
	MajorVersion, MinorVersion        uint16
	Name, Base                        uint32
	NumberOfFunctions, NumberOfNames  uint32
	Functions, Names, NamesToOrdinals uint32
}

// forwarder makes a library for 64-bit Windows without any code: each function that
// it exports is one of another library ("LIBRARY.Function"), which Windows (and Wine)
// finds when the function is asked for.
func forwarder(name string, exports map[string]string) []byte {
	sorted := slices.Sorted(maps.Keys(exports)) // or they aren't found
	n := uint32(len(sorted))
	d := exportDirectory{Base: 1, NumberOfFunctions: n, NumberOfNames: n}
	d.Functions = sectionAddress + uint32(binary.Size(d))
	d.Names = d.Functions + 4*n
	d.NamesToOrdinals = d.Names + 4*n

	var texts []byte
	text := func(s string) uint32 { // its address
		at := d.NamesToOrdinals + 2*n + uint32(len(texts))
		texts = append(append(texts, s...), 0)
		return at
	}
	d.Name = text(name)
	functions, names, ordinals := make([]uint32, n), make([]uint32, n), make([]uint16, n)
	for i, export := range sorted {
		// An address within the exports is no function's: it is the name of another.
		names[i], functions[i], ordinals[i] = text(export), text(exports[export]), uint16(i)
	}
	section := little(d, functions, names, ordinals, texts)
	size := uint32(len(section))

	optional := pe.OptionalHeader64{
		Magic: 0x20b, ImageBase: 0x180000000, // where libraries are, usually
		SectionAlignment: sectionAlignment, FileAlignment: fileAlignment,
		MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6, Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI,
		SizeOfInitializedData: round(size, fileAlignment), SizeOfHeaders: fileAlignment,
		SizeOfImage:        sectionAddress + round(size, sectionAlignment),
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		SizeOfStackReserve: 1 << 20, SizeOfStackCommit: 1 << 12, SizeOfHeapReserve: 1 << 20, SizeOfHeapCommit: 1 << 12,
		NumberOfRvaAndSizes: 16,
	}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: sectionAddress, Size: size}
	dos := make([]byte, 64)
	copy(dos, "MZ")
	binary.LittleEndian.PutUint32(dos[60:], uint32(len(dos))) // where the rest begins
	headers := little(dos, []byte("PE\x00\x00"),
		pe.FileHeader{
			Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
			Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
		}, optional,
		pe.SectionHeader32{
			Name: [8]uint8{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: size, VirtualAddress: sectionAddress,
			SizeOfRawData: round(size, fileAlignment), PointerToRawData: fileAlignment,
			Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
		})
	return append(padded(headers), padded(section)...)
}

func little(parts ...any) []byte {
	var b bytes.Buffer
	for _, part := range parts {
		_ = binary.Write(&b, binary.LittleEndian, part) // a Buffer takes everything
	}
	return b.Bytes()
}

func round(n, to uint32) uint32 { return (n + to - 1) / to * to }

func padded(b []byte) []byte {
	return append(b, make([]byte, round(uint32(len(b)), fileAlignment)-uint32(len(b)))...)
}
