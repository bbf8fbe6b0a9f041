package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

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
