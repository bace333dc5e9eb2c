package assets

import "embed"

//go:embed rendered/ico
var pictures embed.FS

func (i Icon) picture() []byte { return read(pictures, "rendered/ico/", ".ico", i) }

func (i Icon) template() []byte { return nil }

func logoSVG() []byte { return nil }
