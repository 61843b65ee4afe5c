// Text of a first configuration file: what can be set, beside what is found here. Nothing in it loosens anything.

import type { ToolName } from '../project/names.ts';

/** What the text is written for. */
export interface FirstConfig {
  /** What every new file begins with. */
  readonly head: string;
  /** What builds and tests the project; null where it is not known. */
  readonly tool: ToolName | null;
  /** The image of a command that names none. */
  readonly image: string;
}

interface Known {
  /** The key of its image in `sandbox.images`. */
  readonly image: string;
  /** What its dependencies come from, as an entry of an allow-list. */
  readonly install: string;
}

const NODE: Known = { image: 'node', install: 'npm:install' };
const KNOWN: Readonly<Record<ToolName, Known | null>> = {
  npm: NODE,
  pnpm: NODE,
  yarn: NODE,
  pytest: { image: 'python', install: 'pypi' },
  cargo: { image: 'rust', install: 'crates' },
  go: { image: 'go', install: 'go' },
  dotnet: { image: 'dotnet', install: 'api.nuget.org' },
  make: null,
};

/** The entry of an allow-list from which a tool installs. */
export function installEntry(tool: ToolName | null): string | null {
  return tool === null ? null : (KNOWN[tool]?.install ?? null);
}

/** The text. Each line that is off is valid on its own, so taking the # away is enough. */
export function firstConfig({ head, tool, image }: FirstConfig): string {
  const known = tool === null ? null : KNOWN[tool];
  const whose = tool === null || known === null ? 'commands that name none' : `projects like this one (${tool})`;
  return `${head}# Written by \`acode init\`. To set something, take the # away from its line.
sandbox:
  # Keeps a sandbox warm after two commands in ten minutes; never: it does not.
  serve: auto

  # The image of ${whose}, in place of the built-in one.
  # images: { ${known?.image ?? 'default'}: ${JSON.stringify(image)} }

  # Hosts that every command may reach; for one command: --network allow=…
  # network: { allow: [${JSON.stringify(known?.install ?? 'npm:install')}] }

  # Limits of a command that asks for none.
  # defaults: { memory_mb: 2g, timeout_seconds: 10m }

  # Files that are empty inside, besides .env files, private keys and tokens.
  # mask: ["config/secrets.yml"]

  # Lets programs in your terminals write the clipboard. None ever reads it.
  # terminal: { clipboard: write }
`;
}
