package main

// The part of Grafana's dashboard model (schema version 39: Grafana 10.4 and later) that is used.

type dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Editable      bool     `json:"editable"`
	GraphTooltip  int      `json:"graphTooltip"`
	Refresh       string   `json:"refresh"`
	Time          span     `json:"time"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type span struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"`
	Query      string  `json:"query"`
	Datasource *source `json:"datasource,omitempty"`
	Refresh    int     `json:"refresh"`
	Sort       int     `json:"sort,omitempty"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

var prometheus = source{Type: "prometheus", UID: "${datasource}"}

type panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description,omitempty"`
	Datasource  source      `json:"datasource"`
	GridPos     place       `json:"gridPos"`
	FieldConfig fieldConfig `json:"fieldConfig"`
	Targets     []target    `json:"targets"`
}

type place struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

type fieldConfig struct {
	Defaults struct {
		Unit string `json:"unit"`
		Min  *int   `json:"min,omitempty"`
	} `json:"defaults"`
	Overrides []struct{} `json:"overrides"`
}

type target struct {
	RefID  string `json:"refId"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// newDashboard is an empty one, with the variables datasource and job.
func newDashboard(uid, title string) *dashboard {
	d := &dashboard{UID: uid, Title: title, Tags: []string{"stoa"}, SchemaVersion: 39, Editable: true, GraphTooltip: 1,
		Refresh: "30s", Time: span{From: "now-1h", To: "now"}}
	d.Templating.List = []variable{
		{Name: "datasource", Label: "data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		{Name: "job", Label: "cluster", Type: "query", Query: "label_values(stoa_partitions, job)", Datasource: &prometheus, Refresh: 2, Sort: 1},
	}
	return d
}

// query is a line of a panel, or several that the labels in legend tell apart.
type query struct{ legend, expr string }

// Panels stand in rows of three.
const columns, width, height = 3, 8, 8

func (d *dashboard) add(kind, title, unit, description string, queries []query) {
	n := len(d.Panels)
	p := panel{ID: n + 1, Type: kind, Title: title, Description: description, Datasource: prometheus,
		GridPos: place{X: n % columns * width, Y: n / columns * height, W: width, H: height}}
	p.FieldConfig.Overrides = []struct{}{}
	p.FieldConfig.Defaults.Unit = unit
	p.FieldConfig.Defaults.Min = new(int)
	for i, q := range queries {
		p.Targets = append(p.Targets, target{RefID: string(rune('A' + i)), Expr: q.expr, Legend: q.legend})
	}
	d.Panels = append(d.Panels, p)
}

// graph adds lines over time. unit is Grafana's name of it.
func (d *dashboard) graph(title, unit, description string, queries ...query) {
	d.add("timeseries", title, unit, description, queries)
}

// number adds the present values.
func (d *dashboard) number(title, unit, description string, queries ...query) {
	d.add("stat", title, unit, description, queries)
}
