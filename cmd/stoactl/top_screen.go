package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/stoa-kv/stoa/internal/top"
)

// interrupt is what ctrl-C sends as long as the terminal makes no signal of it.
const interrupt = 3

// screen is a terminal that shows one page, beside the one that was there before.
type screen struct {
	out           *os.File
	restore       func()
	keys          chan byte // as they are pressed; nil if input is no terminal
	width, height int
}

// openScreen switches a terminal to a page of its own.
func openScreen(in, out *os.File) (*screen, error) {
	s := &screen{out: out, restore: func() {}}
	if fd := int(in.Fd()); term.IsTerminal(fd) {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return nil, fmt.Errorf("setting up the terminal: %w", err)
		}
		s.restore = func() { _ = term.Restore(fd, state) }
		s.keys = make(chan byte)
		go s.read(in)
	}
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l") // the alternate page, without a cursor
	return s, nil
}

func (s *screen) close() {
	fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	s.restore()
}

// read ends with the process, or with its input.
func (s *screen) read(in *os.File) {
	b := make([]byte, 1)
	for {
		if n, err := in.Read(b); n == 0 || err != nil {
			return
		}
		s.keys <- b[0]
	}
}

// resized reports whether the terminal has another size than what was drawn for.
func (s *screen) resized() bool {
	width, height := s.size()
	return width != s.width || height != s.height
}

// size is that of a terminal; one that doesn't tell is taken for a small one.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw writes over the last report, so that nothing flickers.
func (s *screen) draw(r *top.Report) {
	s.width, s.height = s.size()
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range r.Screen(s.width, s.height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		text := l.Text
		if l.Head {
			text = "\x1b[1m" + text + "\x1b[0m"
		}
		b.WriteString(text + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(s.out, b.String())
}
