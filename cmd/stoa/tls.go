package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.uber.org/zap"
)

// peerClientTLS is for connections to other members. etcd looks at the list of revoked
// certificates only when it accepts connections; here a member that is dialled is checked, too.
func (p *ports) peerClientTLS() (*tls.Config, error) {
	conf, err := p.peerTLSInfo.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("peer TLS: %w", err)
	}
	p.peerTLSInfo.ConfigureCRLVerification(conf)
	return conf, nil
}

// checkRevoked warns of a list that lets nobody in. It may get better: each handshake reads it.
func checkRevoked(file string, lg *zap.Logger) {
	if file == "" {
		return
	}
	der, err := os.ReadFile(file)
	if err == nil {
		_, err = x509.ParseRevocationList(der)
	}
	if err != nil {
		lg.Warn("the list of revoked certificates can't be read (DER, version 2): no certificate is accepted until it can",
			zap.String("crl-file", file), zap.Error(err))
	}
}

// checkOwn warns of a certificate of this server's that those who connect refuse: only they see why. It may get better, as it is read at each
// handshake. urls are where others look for the server.
func checkOwn(file string, urls []url.URL, lg *zap.Logger) {
	text, err := os.ReadFile(file)
	if err != nil {
		return // loading it fails, with the reason
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return
	}
	if now := time.Now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		lg.Warn("the certificate of this server has expired or is not yet valid: others refuse it", zap.String("cert-file", file),
			zap.Time("not-before", cert.NotBefore), zap.Time("not-after", cert.NotAfter))
	}
	for _, u := range urls {
		if u.Scheme != "https" {
			continue
		}
		if err := cert.VerifyHostname(u.Hostname()); err != nil {
			lg.Warn("the certificate of this server doesn't name the host at which the other members look for it: they refuse it",
				zap.String("cert-file", file), zap.Stringer("url", &u), zap.Error(err))
		}
	}
}
