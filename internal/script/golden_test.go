package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each version of the language has a directory in testdata that pins the value and the
// usage of everything there is: a change of a price without a new version shows as a
// change of a file that is never to be changed.
func TestVersionPinsEverything(t *testing.T) {
	files, err := filepath.Glob(fmt.Sprintf("testdata/version-%d/*", Version))
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(text)
	}
	wanted := []string{
		"local ", "do ", "if ", "elseif ", "else ", "while ", "repeat ", "until ", "for ", " in ipairs(", " in pairs(", "break", "return",
		"function(", "local function ", " and ", " or ", "not ", "#", " + ", " - ", " * ", " / ", " % ", " .. ", " == ", " ~= ", " < ", " <= ", " > ", " >= ",
	}
	for name := range builtins {
		if library, function, ok := strings.Cut(name, "."); ok && libraries[library].method(function) && library == "string" && !strings.Contains(all.String(), name+"(") {
			name = ":" + function
		}
		wanted = append(wanted, name+"(")
	}
	for _, w := range wanted {
		require.Contains(t, all.String(), w)
	}
}
