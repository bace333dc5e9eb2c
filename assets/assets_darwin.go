package assets

import "embed"

//go:embed rendered/png rendered/template
var pictures embed.FS

func (i Icon) picture() []byte { return read(pictures, "rendered/png/", ".png", i) }

func (i Icon) template() []byte { return read(pictures, "rendered/template/", ".png", i) }

func logoSVG() []byte { return nil }
