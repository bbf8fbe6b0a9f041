package rpc

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/fault"
)

// statuses are the codes and texts by which etcd's clients know each fault.
var statuses = map[*fault.Fault]error{
	fault.EmptyKey:          rpctypes.ErrGRPCEmptyKey,
	fault.KeyNotFound:       rpctypes.ErrGRPCKeyNotFound,
	fault.ValueProvided:     rpctypes.ErrGRPCValueProvided,
	fault.LeaseProvided:     rpctypes.ErrGRPCLeaseProvided,
	fault.TooManyOps:        rpctypes.ErrGRPCTooManyOps,
	fault.DuplicateKey:      rpctypes.ErrGRPCDuplicateKey,
	fault.InvalidSort:       rpctypes.ErrGRPCInvalidSortOption,
	fault.Compacted:         rpctypes.ErrGRPCCompacted,
	fault.FutureRevision:    rpctypes.ErrGRPCFutureRev,
	fault.NoSpace:           rpctypes.ErrGRPCNoSpace,
	fault.LeaseNotFound:     rpctypes.ErrGRPCLeaseNotFound,
	fault.LeaseExists:       rpctypes.ErrGRPCLeaseExist,
	fault.LeaseTTLTooLarge:  rpctypes.ErrGRPCLeaseTTLTooLarge,
	fault.TooManyRequests:   rpctypes.ErrGRPCRequestTooManyRequests,
	fault.RequestTooLarge:   rpctypes.ErrGRPCRequestTooLarge,
	fault.NoLeader:          rpctypes.ErrGRPCNoLeader,
	fault.NotLeader:         rpctypes.ErrGRPCNotLeader,
	fault.LeaderChanged:     rpctypes.ErrGRPCLeaderChanged,
	fault.Timeout:           rpctypes.ErrGRPCTimeout,
	fault.TimeoutLeaderFail: rpctypes.ErrGRPCTimeoutDueToLeaderFail,
	fault.TimeoutConnLost:   rpctypes.ErrGRPCTimeoutDueToConnectionLost,
	fault.Stopped:           rpctypes.ErrGRPCStopped,
	fault.Corrupt:           rpctypes.ErrGRPCCorrupt,
	fault.MemberNotFound:    rpctypes.ErrGRPCMemberNotFound,
	fault.BadLeaderTransfer: rpctypes.ErrGRPCBadLeaderTransferee,
	fault.Unhealthy:         rpctypes.ErrGRPCUnhealthy,
	fault.SessionGone:       rpctypes.ErrGRPCLeaseNotFound,
	fault.MemberExists:      rpctypes.ErrGRPCMemberExist,
	fault.PeerURLExists:     rpctypes.ErrGRPCPeerURLExist,
	fault.BadPeerURLs:       rpctypes.ErrGRPCMemberBadURLs,
	fault.MemberNotLearner:  rpctypes.ErrGRPCMemberNotLearner,
	fault.LearnerNotReady:   rpctypes.ErrGRPCLearnerNotReady,
	fault.TooManyLearners:   rpctypes.ErrGRPCTooManyLearners,
	fault.NotEnoughStarted:  rpctypes.ErrGRPCMemberNotEnoughStarted,
	fault.Reconfiguring:     rpctypes.ErrGRPCUnhealthy,
	fault.Learner:           rpctypes.ErrGRPCNotSupportedForLearner,

	fault.BadDowngradeTarget: rpctypes.ErrGRPCInvalidDowngradeTargetVersion,
	fault.DowngradeInProcess: rpctypes.ErrGRPCDowngradeInProcess,
	fault.NoDowngrade:        rpctypes.ErrGRPCNoInflightDowngrade,

	fault.RootUserNotExist:     rpctypes.ErrGRPCRootUserNotExist,
	fault.RootRoleNotExist:     rpctypes.ErrGRPCRootRoleNotExist,
	fault.UserExists:           rpctypes.ErrGRPCUserAlreadyExist,
	fault.UserEmpty:            rpctypes.ErrGRPCUserEmpty,
	fault.UserNotFound:         rpctypes.ErrGRPCUserNotFound,
	fault.RoleExists:           rpctypes.ErrGRPCRoleAlreadyExist,
	fault.RoleNotFound:         rpctypes.ErrGRPCRoleNotFound,
	fault.RoleEmpty:            rpctypes.ErrGRPCRoleEmpty,
	fault.AuthFailed:           rpctypes.ErrGRPCAuthFailed,
	fault.PermissionNotGiven:   rpctypes.ErrGRPCPermissionNotGiven,
	fault.PermissionDenied:     rpctypes.ErrGRPCPermissionDenied,
	fault.RoleNotGranted:       rpctypes.ErrGRPCRoleNotGranted,
	fault.PermissionNotGranted: rpctypes.ErrGRPCPermissionNotGranted,
	fault.AuthNotEnabled:       rpctypes.ErrGRPCAuthNotEnabled,
	fault.InvalidAuthToken:     rpctypes.ErrGRPCInvalidAuthToken,
	fault.InvalidAuthMgmt:      rpctypes.ErrGRPCInvalidAuthMgmt,
	fault.AuthOldRevision:      rpctypes.ErrGRPCAuthOldRevision,
}

// codesOf are the codes of faults for which etcd has no text; theirs comes with
// them.
var codesOf = map[*fault.Fault]codes.Code{
	fault.BadExtension:      codes.InvalidArgument,
	fault.ExtensionFailed:   codes.FailedPrecondition,
	fault.ExtensionLimit:    codes.ResourceExhausted,
	fault.ExtensionDisabled: codes.FailedPrecondition,
	fault.NoExtension:       codes.NotFound,
	fault.Uncertain:         codes.Aborted, // clientv3 doesn't repeat it
	fault.ResultForgotten:   codes.FailedPrecondition,
	fault.SessionGap:        codes.Unavailable, // the client comes back, and sends again
	fault.SessionTaken:      codes.Aborted,
	fault.ReadOvertaken:     codes.Unavailable, // its client may ask anew
	fault.TooManySessions:   codes.ResourceExhausted,
	fault.TooMuchWork:       codes.ResourceExhausted,
	fault.Unacknowledged:    codes.FailedPrecondition,
	fault.LeaseEnding:       codes.Unavailable,
	fault.TooManyProfiles:   codes.ResourceExhausted,
	fault.VersionTooLow:     codes.FailedPrecondition,
	fault.NoPasswordUser:    codes.Unknown,
	fault.ForeignClient:     codes.PermissionDenied,
	fault.QuotaExceeded:     codes.ResourceExhausted,
	fault.BadQuota:          codes.InvalidArgument,
	fault.BadPlacement:      codes.InvalidArgument,
	fault.Moving:            codes.Unavailable,
	fault.Fenced:            codes.Unavailable, // clients go on at another member
	fault.Internal:          codes.Internal,
}

// toStatus turns an error of the node into what a client sees. A fault without
// an etcd status keeps its text under code Unknown, as etcd does.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, ctxErr := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ctxErr) {
			return ctxErr // grpc has the code and text for these
		}
	}
	var f *fault.Fault
	if errors.As(err, &f) {
		if s := statuses[f]; s != nil {
			return s
		}
		if code, ok := codesOf[f]; ok {
			return status.Error(code, err.Error())
		}
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}
