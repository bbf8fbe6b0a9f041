package top

import "strings"

// section is a table. A column whose name begins with "-" is aligned to the left.
// Of a row with fewer cells than columns, the last cell takes the place of the columns behind, too.
type section struct {
	columns []string
	rows    [][]string
}

func (s *section) add(cells ...string) { s.rows = append(s.rows, cells) }

// height is the number of lines that it takes, with the empty one above.
func (s *section) height() int {
	if len(s.rows) == 0 {
		return 0
	}
	return len(s.rows) + 2
}

// shorten leaves out rows until sections fit a height, as far as each keeps one.
func shorten(sections []*section, height int) {
	total := 0
	for _, s := range sections {
		total += s.height()
	}
	for ; total > height; total-- {
		longest := sections[0]
		for _, s := range sections {
			if len(s.rows) > len(longest.rows) {
				longest = s
			}
		}
		if len(longest.rows) <= 1 {
			return
		}
		longest.rows = longest.rows[:len(longest.rows)-1]
	}
}

// spans reports whether a cell takes the place of the columns behind.
func (s *section) spans(row []string, at int) bool {
	return at == len(row)-1 && len(row) < len(s.columns)
}

// lines are an empty one, the names of the columns, and the rows.
func (s *section) lines() []Line {
	if len(s.rows) == 0 {
		return nil
	}
	width := make([]int, len(s.columns))
	for i, c := range s.columns {
		width[i] = len(strings.TrimPrefix(c, "-"))
		for _, row := range s.rows {
			if i < len(row) && !s.spans(row, i) {
				width[i] = max(width[i], len(row[i]))
			}
		}
	}
	format := func(cells []string) string {
		var b strings.Builder
		for i, cell := range cells {
			if i > 0 {
				b.WriteString("  ")
			}
			if s.spans(cells, i) {
				b.WriteString(cell)
				break
			}
			pad := strings.Repeat(" ", width[i]-len(cell))
			if strings.HasPrefix(s.columns[i], "-") {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(pad + cell)
			}
		}
		return strings.TrimRight(b.String(), " ")
	}
	head := make([]string, len(s.columns))
	for i, c := range s.columns {
		head[i] = strings.ToUpper(strings.TrimPrefix(c, "-"))
	}
	lines := []Line{{}, {Text: format(head), Head: true}}
	for _, row := range s.rows {
		lines = append(lines, Line{Text: format(row)})
	}
	return lines
}
