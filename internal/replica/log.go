package replica

import "go.uber.org/zap"

// raftLogger gives Raft's words to zap, its routine ones at debug level: P
// groups would fill an operator's log with them.
type raftLogger struct{ *zap.SugaredLogger }

func (l raftLogger) Info(v ...any)                    { l.SugaredLogger.Debug(v...) }
func (l raftLogger) Infof(format string, v ...any)    { l.Debugf(format, v...) }
func (l raftLogger) Warning(v ...any)                 { l.Warn(v...) }
func (l raftLogger) Warningf(format string, v ...any) { l.Warnf(format, v...) }
