// Package cluster holds no Go code: its module pins the servers that the Rust tests in this folder start
// (see the `tool` directives in go.mod). The go command needs one Go file to accept the directory as a package.
package cluster
