package assets

import "embed"

//go:embed rendered/png
var pictures embed.FS

//go:embed icons/intermission.svg
var vector string

func (i Icon) picture() []byte { return read(pictures, "rendered/png/", ".png", i) }

func (i Icon) template() []byte { return nil }

func logoSVG() []byte { return []byte(vector) }
