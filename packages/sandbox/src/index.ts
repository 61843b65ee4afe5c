// The public surface of @acode/sandbox and nothing else.

export { Acode } from './host/acode.ts';
export type { Observer } from './host/acode.ts';
export type { Logs } from './host/logs.ts';
export type { ConfigInput } from './contract/config.ts';
export type {
  CheckedConfigFile,
  ConfigChange,
  ConfigFile,
  ConfigLayer,
  ConfigPlan,
  ConfigProblem,
  ConfigValue,
  Configuration,
  Consent,
  LooseningChange,
} from './contract/configuration.ts';
export type {
  Audit,
  AuditChange,
  AuditFault,
  AuditHead,
  AuditKind,
  AuditProblem,
  AuditRecord,
  AuditVerification,
  ChangesQuery,
  ProvisionFigures,
  RecordedChanges,
  Stats,
  StatsQuery,
} from './contract/audit.ts';
export { CACHE_TOOLS } from './contract/caches.ts';
export type { CachePolicy, CacheSpec, CacheTool, CacheVolume } from './contract/caches.ts';
export { chooseChanges } from './contract/changes.ts';
export type { ChosenChanges } from './contract/changes.ts';
export type { ArtifactRequest, Command, RunRequest } from './contract/command.ts';
export { ERRORS, entry as errorEntry } from './contract/error-table.ts';
export { AcodeError, defineErrors, errorOfOtherTable, limitError } from './contract/errors.ts';
export type {
  AnyEntry,
  ErrorCode,
  ErrorContexts,
  ErrorEntry,
  ErrorFindings,
  MountViolation,
  SecurityViolation,
} from './contract/error-table.ts';
export type { Shortage } from './contract/system-error.ts';
export type { ErrorJson, ErrorTable, ForeignErrorJson } from './contract/errors.ts';
export type { AcodeEvent, AcodeEventType, AcodeEvents, EventBus, RemovalReason } from './contract/events.ts';
export type {
  EngineResource,
  CleanupOptions,
  CleanupReport,
  Explanation,
  OwnDirectory,
  Remote,
  SparedTrace,
  KpiEvent,
  KpiReport,
  LevelStatus,
  LogEvent,
  RunningLog,
  SandboxCounts,
  SandboxDetails,
  SandboxInfo,
  SandboxUsage,
  SandboxState,
  SavedLog,
  SavedLogInfo,
  ServeSetting,
  Status,
  UninstallOptions,
  UninstallReport,
  PolicyRules,
  PoolOptions,
  WarmPool,
} from './contract/host.ts';
export type {
  ImageInfo,
  ImageList,
  ImagePruneOptions,
  ImagePruneReport,
  ImagePullOptions,
  Images,
  LayerProgress,
  PrunedImage,
  PullProgress,
  PulledImage,
  SignedImage,
  VerifySignature,
} from './contract/images.ts';
export { LEVELS, RISKS, isAtLeast, isBoundary } from './contract/levels.ts';
export { PROFILE_NAMES } from './contract/profiles.ts';
export type { ProfileName } from './contract/profiles.ts';
export type { Level, Risk } from './contract/levels.ts';
export { STATE_TARGET, policyFrom } from './contract/policy.ts';
export type { ImageProgram, ServiceInput, ServiceRequest } from './contract/services.ts';
export type {
  AllowedHosts,
  DiskInput,
  EffectivePolicy,
  FilledCaches,
  ImageTrust,
  Layer,
  Limits,
  LimitsInput,
  MountRequest,
  NamedNetwork,
  NetworkLimitsInput,
  PolicyFields,
  StateRequest,
  PolicyInput,
  PortRequest,
  Sourced,
  UserId,
} from './contract/policy.ts';
export type { ProgramRequest, Programs } from './contract/programs.ts';
export { networkName } from './contract/network.ts';
export type { NetworkMode } from './contract/network.ts';
export type {
  CredentialForm,
  CredentialRequest,
  CredentialSource,
  EgressCredential,
  LoginDefinition,
} from './contract/credentials.ts';
export type { LoginAttempt, LoginInfo, LoginOptions, LoginsOfUser, LogoutReport } from './contract/logins.ts';
export type {
  EgressConnection,
  EgressProtocol,
  EgressRefusal,
  EgressRequests,
  EgressRule,
  EgressTreatment,
  GitSsh,
} from './contract/egress.ts';
export type {
  AccessAnswer,
  AccessGrantRequest,
  AccessQuestion,
  GrantedAccess,
  NetworkAccess,
  PendingAccess,
  PresetInfo,
  RunningNetwork,
} from './contract/network-access.ts';
export type { BuildProjectOptions, ProjectImage, ProjectInput, ProjectInstall } from './contract/project-image.ts';
export type { Clock, LogFields, Logger, MetricLabels, Metrics } from './contract/ports.ts';
export { denialParts, denialText } from './contract/denial-text.ts';
export type { DenialParts, DenialStyle } from './contract/denial-text.ts';
export { layerText, rendered } from './contract/wording.ts';
export type { FieldReference, SettingReference, SourceReference, Terms, Text, TextPart } from './contract/wording.ts';
export { settingCommand, settingText, settingYaml } from './contract/setting.ts';
export type { Setting, SettingValue } from './contract/setting.ts';
export type { Source } from './contract/sourced.ts';
export { denialSchema } from './contract/denial-schema.ts';
export { RISKY_KINDS, isRiskyKind } from './contract/result.ts';
export { errorFromJson } from './contract/error-json.ts';
export { DENIAL_RULES } from './contract/denials.ts';
export type { Denial, DenialEffect, Remedy, RuleId, RuleValue, WritablePlace } from './contract/denials.ts';
export type {
  ArtifactReport,
  ChangeCounts,
  LimitName,
  PublishedPort,
  RiskyChange,
  RiskyKind,
  RunResult,
  RunningCommand,
  ScanState,
  Usage,
  WebRunResult,
  ForkResult,
} from './contract/result.ts';
export type {
  ApplyReport,
  ForkChange,
  ForkConflict,
  ForkConflictReason,
  ForkContentGap,
  ForkDiffCounts,
  ForkDiffSummary,
  ForkEntryKind,
  ForkKept,
  ForkRefusal,
  ForkRefusalReason,
  ForkSides,
  PendingApply,
  WorkspaceDiff,
} from './contract/fork.ts';
export type {
  AcceptedRisk,
  ForkApplied,
  ForkApplyEnded,
  ForkApplyRequest,
  ForkBranchFound,
  ForkBranchRequest,
  ForkBranched,
  ForkCommand,
  ForkConsent,
  ForkDiffRequest,
  ForkInfo,
  ForkListOptions,
  ForkPatch,
  ForkPatchRequest,
  Forks,
  ForkCopyOptions,
  ForkCreateOptions,
  ForkExport,
  ForkExportRequest,
  ForkImportRequest,
  ForkUndoOptions,
  PatchOmission,
} from './contract/forks.ts';
export { maskWarningText } from './contract/masks.ts';
export type { MaskedPath, MaskReport, Masks, MaskWarning } from './contract/masks.ts';
export type { ScanJob, ScanReport, ScanRoot } from './contract/scan.ts';
export type { Sandbox } from './persistent/sandbox.ts';
export { createRequestFrom } from './contract/sandbox.ts';
export type {
  CommandHandle,
  CommandInfo,
  CommandRequest,
  CommandRunner,
  Commands,
  ContentOptions,
  CreateFields,
  CreateRequest,
  DirectoryEntry,
  DirectoryOptions,
  FileCall,
  FileChange,
  FileStats,
  Files,
  ForwardedPort,
  Ports,
  ReadingOptions,
  RunnerRequest,
  StreamOptions,
  TerminalHandle,
  TerminalRequest,
  TerminalSize,
  TransferOptions,
  TransferReport,
  WriteFlag,
  WritingOptions,
} from './contract/sandbox.ts';
export type {
  DependencySpec,
  FileIdentity,
  ImageSpec,
  MountSpec,
  SandboxIdentity,
  SandboxSpec,
  ServiceSpec,
  TmpfsSpec,
} from './contract/spec.ts';
export type {
  AttackOptions,
  AttackReport,
  Check,
  CheckStatus,
  DoctorReport,
  Grade,
  Probe,
  ProbeVerdict,
} from './host/doctor/report.ts';
export type { AcodeOptions } from './host/options.ts';
export { directoriesOf, ensurePrivateDirectory, homeOf } from './lifecycle/directories.ts';
export type { Directories, DirectoriesHost } from './lifecycle/directories.ts';
export { LockTimeoutError, Locks } from './lifecycle/lock.ts';
export type { LockWait, LocksOptions } from './lifecycle/lock.ts';
export { readPrivateFile, writePrivateFile } from './lifecycle/directories.ts';
export type { BoundedFile, PrivateRead, PrivateWrite } from './lifecycle/directories.ts';
export type { TrustKey } from './policy/repository.ts';
export type { RefusedKey, Trust, TrustReport } from './run/repository.ts';
export { TerminalSanitiser } from './run/output/terminal.ts';
export { formatBytes, parseBytes } from './contract/units.ts';
