package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for servers and clients of one cluster. It has issued three
// at first: "ca", its own; "server", for 127.0.0.1; and "client".
type Authority struct {
	Cert *x509.Certificate

	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	last int64
}

// NewAuthority makes an authority whose files end with the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.Cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	a.Issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	a.Issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return a
}

// Issue writes name.pem and name.key; name is also the common name, unless c has one. Without
// a usage the certificate is for servers and for clients: etcd is a client of itself, and
// members are of each other. It is valid now, unless c says when.
func (a *Authority) Issue(name string, c *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	issued, _ := a.issue(name, c)
	return issued
}

func (a *Authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	a.last++
	c.SerialNumber = big.NewInt(a.last)
	if c.Subject.CommonName == "" {
		c.Subject = pkix.Name{CommonName: name}
	}
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	c.KeyUsage |= x509.KeyUsageDigitalSignature
	by, signer := a.Cert, a.key
	if by == nil { // its own is the first
		by, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	a.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		a.must(os.WriteFile(a.File(file), pem.EncodeToMemory(block), 0o600))
	}
	issued, err := x509.ParseCertificate(der)
	a.must(err)
	return issued, key
}

// Revoke writes crl.der, the list of all certificates that are revoked.
func (a *Authority) Revoke(revoked ...*x509.Certificate) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.Cert, a.key)
	a.must(err)
	a.must(os.WriteFile(a.File("crl.der"), der, 0o600))
}

// File is the path of one of the authority's files.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Flags make a server serve, and demand, certificates of the authority: with the prefix
// "peer-" those of peers, else of clients.
func (a *Authority) Flags(prefix string) []string {
	return []string{
		"--" + prefix + "cert-file=" + a.File("server.pem"), "--" + prefix + "key-file=" + a.File("server.key"),
		"--" + prefix + "trusted-ca-file=" + a.File("ca.pem"), "--" + prefix + "client-cert-auth",
	}
}

// Client is the configuration of a client that trusts the authority, and shows the
// certificate of the name; with an empty name, none.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AddCert(a.Cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.File(name+".pem"), a.File(name+".key"))
		a.must(err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
