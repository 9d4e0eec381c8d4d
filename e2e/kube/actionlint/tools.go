//go:build tools

// Package actionlint pins the program that checks the workflow files.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package actionlint

import _ "github.com/rhysd/actionlint/cmd/actionlint"
