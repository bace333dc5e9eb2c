# A formula for a tap of your own. It has no service block: brew services would write a
# launchd agent (or a systemd unit) of its own, which knows nothing of the order at a stop
# and would be a second one beside that of "intermission service install".
{{- if not .Placed}}
#
# It takes the archive of your machine from the directory in which it stands, which is
# the tap's Formula. One that downloads it: make packages DOWNLOADS=https://…
{{- end}}
class Intermission < Formula
  desc "{{.Title}}"
  homepage "{{.Homepage}}"
  version "{{.Version}}"
  license "MIT"

  on_macos do
    on_arm do
      url "{{.Files.darwin_arm64.URL}}"
      sha256 "{{.Files.darwin_arm64.SHA256}}"
    end
    on_intel do
      url "{{.Files.darwin_amd64.URL}}"
      sha256 "{{.Files.darwin_amd64.SHA256}}"
    end
  end

  on_linux do
    on_arm do
      url "{{.Files.linux_arm64.URL}}"
      sha256 "{{.Files.linux_arm64.SHA256}}"
    end
    on_intel do
      url "{{.Files.linux_amd64.URL}}"
      sha256 "{{.Files.linux_amd64.SHA256}}"
    end
  end

  def install
    bin.install "intermission"
    man1.install "man/intermission.1"
    bash_completion.install "completions/intermission.bash" => "intermission"
    zsh_completion.install "completions/_intermission"
    fish_completion.install "completions/intermission.fish"
    doc.install "CHANGELOG.md", "LICENSE.txt", "THIRD-PARTY-LICENSES.txt"
  end

  def caveats
    <<~TEXT
      To let it run in the background, now and at each login:
        #{opt_bin}/intermission service install
      An upgrade is taken over by itself. Before you uninstall the formula:
        intermission service uninstall
    TEXT
  end

  test do
    assert_equal "intermission #{version}\n", shell_output("#{bin}/intermission version")
    assert_match "no supervisor", shell_output("#{bin}/intermission status 2>&1", 3)
  end
end
