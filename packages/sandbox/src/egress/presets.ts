// Presets: names for what tasks need of the network, as data. A preset named after an action allows that action and no other.

import { parseHost } from './host-name.ts';
import { requestsOf } from './repository.ts';
import type { EgressProtocol, EgressRequests, EgressTreatment } from '../contract/egress.ts';

/** A host of a preset. */
export interface PresetHost {
  readonly host: string;
  readonly port: number;
  readonly protocol: EgressProtocol;
  readonly mode: EgressTreatment;
  readonly requests?: readonly EgressRequests[];
  readonly credential?: string;
}

/** A preset. */
export interface Preset {
  /** How a list names it, such as `npm:install`; a value in angle brackets is the user’s to fill in. */
  readonly name: string;
  /** Grows with each change of what it allows. */
  readonly version: number;
  /** What it is for. */
  readonly title: string;
  /** What it does not prevent. */
  readonly risk: string;
  /** The hosts, with the value of a preset that takes one. */
  readonly hosts: readonly PresetHost[];
}

const READ = ['GET', 'HEAD'];

function passed(host: string): PresetHost {
  return { host, port: 443, protocol: 'tls', mode: 'pass' };
}

function inspected(host: string, requests: readonly EgressRequests[], credential?: string): PresetHost {
  return { host, port: 443, protocol: 'tls', mode: 'inspect', requests, ...(credential ? { credential } : {}) };
}

function read(host: string): PresetHost {
  return inspected(host, [{ methods: READ, path: '/' }]);
}

// What Debian’s own tools fetch is signed and comes over plain HTTP.
function plain(host: string): PresetHost {
  return { host, port: 80, protocol: 'http', mode: 'pass', requests: [{ methods: READ, path: '/' }] };
}

const ADDRESSES =
  'A request can carry data in its address, which the server’s operators see; no upload, and nothing that other users could read.';
const MODEL = 'What the command sends reaches the model’s vendor under your account, and costs what you pay for it.';

const FIXED: readonly Preset[] = [
  {
    name: 'npm:install',
    version: 1,
    title: 'install packages from the npm registry; publishing is refused',
    risk: ADDRESSES,
    hosts: [
      inspected('registry.npmjs.org', [
        { methods: READ, path: '/' },
        { methods: ['POST'], path: '/-/npm/v1/security/advisories/bulk$' },
        { methods: ['POST'], path: '/-/npm/v1/security/audits/quick$' },
      ]),
    ],
  },
  {
    name: 'pypi',
    version: 1,
    title: 'install packages from the Python Package Index, by hosts that take no uploads',
    risk: ADDRESSES,
    hosts: [passed('pypi.org'), passed('files.pythonhosted.org')],
  },
  {
    name: 'crates',
    version: 1,
    title: 'install crates from crates.io, by hosts that take no uploads',
    risk: ADDRESSES,
    hosts: [passed('index.crates.io'), passed('static.crates.io')],
  },
  {
    name: 'go',
    version: 1,
    title: 'fetch Go modules by proxy.golang.org and check them by sum.golang.org',
    risk: 'proxy.golang.org fetches any public module that it is asked for, so that a module’s server can learn its name.',
    hosts: [passed('proxy.golang.org'), passed('sum.golang.org')],
  },
  {
    name: 'debian',
    version: 1,
    title: 'install packages of Debian',
    risk: `${ADDRESSES} Over plain HTTP, so does everybody on the way.`,
    hosts: [
      passed('deb.debian.org'),
      passed('security.debian.org'),
      plain('deb.debian.org'),
      plain('security.debian.org'),
    ],
  },
  {
    name: 'github:read',
    version: 1,
    title: 'clone, fetch and download from GitHub; pushing, gists, comments and GraphQL are refused',
    risk: 'A request can carry data in its address, which GitHub sees; owners of repositories see how often they are read.',
    hosts: [
      inspected('github.com', [
        { methods: READ, path: '/' },
        { methods: ['POST'], path: '/*/*/git-upload-pack$' },
      ]),
      read('api.github.com'),
      read('codeload.github.com'),
      read('raw.githubusercontent.com'),
      read('objects.githubusercontent.com'),
      read('release-assets.githubusercontent.com'),
    ],
  },
  {
    name: 'anthropic',
    version: 1,
    title: 'use Claude by the Anthropic API, with a key that the sandbox never sees',
    risk: MODEL,
    hosts: [
      inspected(
        'api.anthropic.com',
        [
          { methods: ['POST'], path: '/v1/messages$' },
          { methods: ['POST'], path: '/v1/messages/count_tokens$' },
          { methods: ['GET'], path: '/v1/models' },
        ],
        'anthropic',
      ),
    ],
  },
  {
    name: 'openai',
    version: 1,
    title: 'use models of OpenAI by its API, with a key that the sandbox never sees',
    risk: MODEL,
    hosts: [
      inspected(
        'api.openai.com',
        [
          { methods: ['POST'], path: '/v1/responses$' },
          { methods: ['POST'], path: '/v1/chat/completions$' },
          { methods: ['POST'], path: '/v1/embeddings$' },
          { methods: ['GET'], path: '/v1/models' },
        ],
        'openai',
      ),
    ],
  },
  {
    name: 'google-ai',
    version: 1,
    title: 'use Gemini by the Google AI API, with a key that the sandbox never sees',
    risk: MODEL,
    hosts: [
      inspected(
        'generativelanguage.googleapis.com',
        [
          { methods: ['GET', 'POST'], path: '/v1beta/models' },
          { methods: ['GET', 'POST'], path: '/v1/models' },
        ],
        'google-ai',
      ),
    ],
  },
];

const PUSH = 'github:push';
const REPOSITORY = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})\/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}$/;

function push(repository: string): Preset {
  const bare = repository.replace(/\.git$/, '');
  return {
    name: `${PUSH}=${repository}`,
    version: 1,
    title: `fetch from and push to one repository of GitHub`,
    risk: 'What is pushed can be read by everybody who can read the repository, and its workflows may run it.',
    hosts: [inspected('github.com', requestsOf(bare, true), 'github')],
  };
}

/** Every preset, to be shown; `github:push` with a place for its value. */
export const PRESETS: readonly Preset[] = [...FIXED, push('<owner>/<repository>')];

/** The names that a list may use, without values. */
export const PRESET_NAMES: readonly string[] = [...FIXED.map(({ name }) => name), PUSH];

/** The preset that an entry names; `fault` if it names one in a way that cannot be; null if it names none. */
export function presetOf(entry: string): Preset | { readonly fault: string } | null {
  const [name = '', ...values] = entry.split('=');
  const value = values.join('=');
  if (name === PUSH)
    return REPOSITORY.test(value) ? push(value) : { fault: `needs a repository, such as ${PUSH}=owner/repository` };
  const preset = FIXED.find(one => one.name === name);
  if (!preset) return null;
  return values.length === 0 ? preset : { fault: `${name} takes no value` };
}

const TLS_PORT = 443;
const HTTP_PORT = 80;

/**
 * The entry of an allow-list that allows a host and a port, for a person to accept: a preset where one has the host, because it allows
 * less than the host does and is what a command needs nearly always. Null where no list can have the host.
 */
export function entryFor({ host, port }: Pick<PresetHost, 'host' | 'port'>): string | null {
  if (!host.includes('.') || parseHost(host) === null) return null;
  const preset = PRESETS.find(({ hosts }) => hosts.some(one => one.host === host && one.port === port));
  if (preset) return preset.name;
  if (port === TLS_PORT) return host;
  return port === HTTP_PORT ? `http:${host}` : `tcp:${host}:${port}`;
}
