package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"
)

// jar is one file of ZooKeeper's class path.
type jar struct {
	path   string // below a Maven repository
	sha256 string
}

// jars are what a ZooKeeper server needs that listens without TLS, has no admin
// server and keeps its default metrics: the versions that its own POM names. The
// sums were taken from Maven Central when the version was chosen.
var jars = []jar{
	{"org/apache/zookeeper/zookeeper/3.9.4/zookeeper-3.9.4.jar", "7bb3bb38bbddbc71424c59a7a0b170a1b2147313a84c972225ab0568dab513bf"},
	{"org/apache/zookeeper/zookeeper-jute/3.9.4/zookeeper-jute-3.9.4.jar", "bd9750935add09b6cb920f7bcf0fa7b9a8165c45cdafd8ee1fc6808c46ec9094"},
	{"org/slf4j/slf4j-api/2.0.13/slf4j-api-2.0.13.jar", "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9"},
	{"org/slf4j/slf4j-simple/2.0.13/slf4j-simple-2.0.13.jar", "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7"},
	{"io/dropwizard/metrics/metrics-core/4.1.12.1/metrics-core-4.1.12.1.jar", "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9"},
	{"org/xerial/snappy/snappy-java/1.1.10.5/snappy-java-1.1.10.5.jar", "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b"},
	{"commons-io/commons-io/2.17.0/commons-io-2.17.0.jar", "4aa4ca48f3dfd30b78220b7881d8cb93eac4093ec94361b6befa9487998a550b"},
}

// mavens are addresses of Maven Central, tried in this order.
var mavens = []string{"https://repo.maven.apache.org/maven2/", "https://repo1.maven.org/maven2/"}

// fetchZooKeeper puts ZooKeeper's jars into bin/peers/zookeeper. A jar that is there
// with the right sum stays, so a second run needs no network.
func fetchZooKeeper(force bool) error {
	if _, err := exec.LookPath("java"); err != nil {
		fmt.Fprintln(os.Stderr, "zookeeper skipped: no java in PATH (Java 11 or later is needed to run it, 17 is tested)")
		return nil
	}
	root, err := repository()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "bin", "peers", "zookeeper")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of ZooKeeper: %w", err)
	}
	for _, j := range jars {
		file := filepath.Join(dir, path.Base(j.path))
		if !force && j.matches(file) {
			continue
		}
		fmt.Fprintf(os.Stderr, "fetching %s\n", path.Base(j.path))
		if err := j.fetch(file); err != nil {
			return fmt.Errorf("fetching %s: %w", path.Base(j.path), err)
		}
	}
	return nil
}

// matches tells whether the file is there and is the jar.
func (j jar) matches(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == j.sha256
}

func (j jar) fetch(file string) error {
	var errs []error
	for _, maven := range mavens {
		err := j.fetchFrom(maven+j.path, file)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fetchFrom loads the jar from one address (through the proxy that HTTPS_PROXY names)
// and puts it in place only if it has the sum that is pinned here.
func (j jar) fetchFrom(url, file string) error {
	client := &http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(tmp, sum), resp.Body)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", url, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != j.sha256 {
		return fmt.Errorf("%s has the SHA-256 %s, %s is pinned", url, got, j.sha256)
	}
	return os.Rename(tmp.Name(), file)
}
