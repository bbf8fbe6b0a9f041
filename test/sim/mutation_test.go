package sim

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/sim/cover/overlay"
	"github.com/stoa-kv/stoa/test/sim/mutate"
)

var (
	mutation = flag.String("mutation", "", "run with this seeded bug (one of the production code: with what -mutants has left)")
	// mutationSeeds is how many seeds a seeded bug may take to be noticed.
	mutationSeeds = flag.Int("mutation-seeds", 300, "how many seeds to try with each seeded bug")
	mutants       = flag.String("mutants", "", "leave the test binary that has the mutations of the production code here")
)

// Every seeded bug is detected by the checks. Those of the production code are
// looked for by a test binary of their own, into which they are compiled.
func TestMutations(t *testing.T) {
	for _, m := range Mutations() {
		t.Run(m.Name, func(t *testing.T) { notice(t, m) })
	}
	if seeded {
		return
	}
	product, err := mutate.Load("mutations")
	require.NoError(t, err)
	binary := build(t, product)
	out, err := exec.Command(binary, "-test.run=^TestNoMutation$", "-test.v").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), traces(), "a mutation that isn't chosen, or a note, has an effect")
	t.Run("guided runs", func(t *testing.T) {
		out, err := exec.Command(binary, "-test.run=^TestSim$", "-runs=6", "-guide="+filepath.Join(t.TempDir(), "guide")).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "steps are known")
	})
	for _, m := range product {
		t.Run(m.Name, func(t *testing.T) {
			if m.Test != "" {
				noticeScripted(t, binary, m)
				return
			}
			out, err := exec.Command(binary, "-test.run=^TestMutant$", "-mutation="+m.Name,
				fmt.Sprint("-mutation-seeds=", *mutationSeeds)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			fmt.Print(firstLine(string(out)))
		})
	}
}

// noticeScripted has a scripted test notice a mutation.
func noticeScripted(t *testing.T, binary string, m mutate.Mutation) {
	out, err := exec.Command(binary, "-test.run=^"+m.Test+"$", "-mutation="+m.Name).CombinedOutput()
	require.Error(t, err, "%s doesn't notice %s", m.Test, m.Name)
	require.Contains(t, string(out), "--- FAIL: "+m.Test)
	fmt.Printf("%s is noticed by %s\n", m.Name, m.Test)
}

// TestNoMutation runs in that binary, which does the same as this one as long as no mutation is
// chosen.
func TestNoMutation(t *testing.T) {
	if !seeded {
		t.Skip("compared by TestMutations")
	}
	fmt.Println(traces())
}

// traces are those of some runs, in which most of what mutations change is executed.
func traces() string {
	s := "traces:"
	for seed := range uint64(12) {
		o := Options{Seed: seed, Resize: seed%2 == 0}
		if seed%4 == 3 {
			o = forced(o)
		}
		s += fmt.Sprintf(" %x", Run(o).Trace)
	}
	return s
}

// TestMutant runs in that binary.
func TestMutant(t *testing.T) {
	if *mutation == "" {
		t.Skip("no -mutation")
	}
	notice(t, chosenMutation(t))
}

func notice(t *testing.T, m Mutation) {
	for i := range *mutationSeeds {
		s := uint64(i)
		if i == 0 {
			s = m.Seed
		}
		o := Options{Seed: s, Mutation: m, Members: m.Members, Users: m.Users, Balance: m.Balance, Resize: m.Resize, Checks: m.Checks, Swarm: *swarm || m.Swarm}
		if m.Force {
			o = forced(o)
		}
		if r := Run(o); r.Failure != nil {
			fmt.Printf("%s is noticed after %d seeds: %.200s\n", m.Name, i+1, firstLine(r.Failure.Error()))
			return
		}
	}
	require.Fail(t, "nothing notices "+m.Name)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line + "\n"
}

// build compiles the mutations in, and the notes that guides need.
func build(t *testing.T, product []mutate.Mutation) string {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	here, err := os.ReadFile("mutations/mutant.go.overlay")
	require.NoError(t, err)
	at, err := overlay.Write(root, t.TempDir(), product, map[string]string{"test/sim/mutant.go": string(here)})
	require.NoError(t, err)
	binary := *mutants
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "mutants.test")
	}
	out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", at, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

func chosenMutation(t *testing.T) Mutation {
	if *mutation == "" {
		return Mutation{}
	}
	for _, m := range Mutations() {
		if m.Name == *mutation {
			return m
		}
	}
	product, err := mutate.Load("mutations")
	if errors.Is(err, os.ErrNotExist) || !seeded {
		t.Fatalf("no mutation %q in this build; one of the production code is in the binary that TestMutations leaves by -mutants", *mutation)
	}
	require.NoError(t, err)
	for _, m := range product {
		if m.Name == *mutation {
			switchOn(m.Name)
			return Mutation{Name: m.Name, Seed: m.Seed, Members: m.Members, Users: m.Users, Force: m.Force, Balance: m.Balance, Resize: m.Resize, Checks: m.Checks, Swarm: m.Swarm}
		}
	}
	t.Fatalf("there is no mutation %q", *mutation)
	return Mutation{}
}
