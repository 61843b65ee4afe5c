// The variables that every command without a network is given, written out here so that a test says what it expects.

/** The names of those that tell package managers to work offline. */
export const OFFLINE_NAMES: readonly string[] = [
  'npm_config_offline',
  'pnpm_config_offline',
  'YARN_ENABLE_NETWORK',
  'PIP_NO_INDEX',
  'UV_OFFLINE',
  'CARGO_NET_OFFLINE',
  'GOPROXY',
  'COMPOSER_DISABLE_NETWORK',
];
