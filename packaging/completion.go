// Package packaging makes what an installed program brings with it beside itself:
// the completion scripts of shells, and the manual page.
package packaging

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion gives the completion script of a command line for bash, zsh or fish,
// and "" for another shell.
func Completion(app *kong.Application, shell string) string {
	script := map[string]func(*kong.Application) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
	if script == nil {
		return ""
	}
	return script(app)
}

// bashFlags gives what completes the word after one of these flags, in bash: the words
// of a choice, and of anything else nothing.
func bashFlags(flags []*kong.Flag) string {
	var cases strings.Builder
	for _, f := range flags {
		if !f.IsBool() && !f.IsCounter() {
			words := ""
			if f.Enum != "" {
				words = strings.Join(f.EnumSlice(), " ")
			}
			fmt.Fprintf(&cases, " --%s) words='%s' ;;", f.Name, words)
		}
	}
	if cases.Len() == 0 {
		return ""
	}
	return "; case $before in" + cases.String() + " esac"
}

// offered gives what may follow a command: its flags, the application's included,
// and the words of an argument that is a choice.
func offered(command *kong.Node) (flags []*kong.Flag, words []string) {
	for _, group := range command.AllFlags(true) {
		flags = append(flags, group...)
	}
	for _, arg := range command.Positional {
		if arg.Enum != "" {
			words = append(words, arg.EnumSlice()...)
		}
	}
	return flags, words
}

// shown are the commands of a node that people are told of.
func shown(node *kong.Node) (commands []*kong.Node) {
	for _, child := range node.Children {
		if !child.Hidden {
			commands = append(commands, child)
		}
	}
	return commands
}

func names(commands []*kong.Node) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func bashCompletion(app *kong.Application) string {
	var cases, groups strings.Builder // what is in a group is asked for before the group
	for _, command := range app.Leaves(true) {
		flags, words := offered(command)
		for _, f := range flags {
			words = append(words, "--"+f.Name)
		}
		fmt.Fprintf(&cases, "    ' %s '*) words='%s'%s ;;\n", command.Path(), strings.Join(words, " "), bashFlags(flags))
	}
	for _, group := range shown(app.Node) {
		if !group.Leaf() {
			fmt.Fprintf(&groups, "    ' %s '*) words='%s' ;;\n", group.Name, names(shown(group)))
		}
	}
	return `_intermission() {
  local word path= words='` + names(shown(app.Node)) + ` --help --json'
  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    [[ $word == -* ]] || path+=" $word"
  done
  local before=${COMP_WORDS[COMP_CWORD-1]}
  case "$path " in
` + cases.String() + groups.String() + `  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _intermission intermission
`
}

// zshCompletion is bash's, by zsh's own bridge to it. It can be sourced, and it can
// stand in a directory of fpath, from where its first use comes by a call.
func zshCompletion(app *kong.Application) string {
	return "#compdef intermission\n" +
		"(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n" +
		"autoload -Uz bashcompinit\nbashcompinit\n" + bashCompletion(app) +
		"[[ $funcstack[1] != _intermission ]] || _bash_complete -F _intermission\n"
}

func fishCompletion(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("complete -c intermission -f\n")
	for _, command := range shown(app.Node) {
		fmt.Fprintf(&b, "complete -c intermission -n __fish_use_subcommand -a %s -d %s\n", command.Name, quoted(command.Help))
		seen := "__fish_seen_subcommand_from " + command.Name
		if command.Leaf() {
			fishCommand(&b, command, seen)
			continue
		}
		among := names(shown(command))
		for _, c := range shown(command) {
			fmt.Fprintf(&b, "complete -c intermission -n %s -a %s -d %s\n",
				quoted(seen+"; and not __fish_seen_subcommand_from "+among), c.Name, quoted(c.Help))
			fishCommand(&b, c, seen+"; and __fish_seen_subcommand_from "+c.Name)
		}
	}
	return b.String()
}

// fishCommand writes what may follow a command, which was seen when a condition holds.
func fishCommand(b *strings.Builder, command *kong.Node, seen string) {
	flags, words := offered(command)
	after := "complete -c intermission -n " + quoted(seen)
	for _, f := range flags {
		value := ""
		switch {
		case f.Enum != "":
			value = " -x -a " + quoted(strings.Join(f.EnumSlice(), " "))
		case !f.IsBool():
			value = " -x"
		}
		fmt.Fprintf(b, "%s -l %s%s -d %s\n", after, f.Name, value, quoted(f.Help))
	}
	if len(words) > 0 {
		fmt.Fprintf(b, "%s -a %s\n", after, quoted(strings.Join(words, " ")))
	}
}

// quoted quotes for a shell. Our help texts hold no backslash.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
