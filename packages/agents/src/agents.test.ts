// Presets, the user’s own file, which build a platform gets, and what an archive may hold.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import type { Acode } from '@acode/sandbox';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { unpack } from './archive.ts';
import { copiedConfiguration } from './copied.ts';
import { credentialsOf, valueAt } from './credential.ts';
import { PRESETS, agentCalled, agentOrProgram, knownAgents } from './known.ts';
import { isNear } from './near.ts';
import { presetSchema } from './preset.ts';
import { addProgram, hasProgram, platformsOf } from './program.ts';
import type { Fetching } from './program.ts';

import { addStart, seedVariables } from './start.ts';
import type { Seeds } from './start.ts';

let home = '';
let env: Record<string, string> = {};
beforeEach(() => {
  home = mkdtempSync('/tmp/acode-agents-');
  env = { HOME: home, PATH: '/usr/bin:/bin' };
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function put(path: string, content: unknown, mode = 0o600): string {
  const file = join(home, path);
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content), { mode });
  chmodSync(file, mode);
  return file;
}

describe('presets', () => {
  it('are valid, and pin every package that they name for this kind of machine', () => {
    for (const preset of PRESETS) {
      expect(presetSchema.parse(preset)).toEqual(preset);
      expect(platformsOf(preset), preset.name).toContainEqual({ arch: 'x64', libc: 'glibc' });
    }
    expect(PRESETS.map(({ name }) => name)).toEqual(['claude', 'codex', 'gemini', 'opencode']);
  });

  it('have a build for musl, or none, which is known before anything is fetched', () => {
    const musl = PRESETS.filter(preset => platformsOf(preset).some(({ libc }) => libc === 'musl'));
    expect(musl.map(({ name }) => name)).toEqual(['claude', 'codex']);
    const asked: string[] = [];
    const programs = { has: (id: string) => asked.push(id) > 0, add: () => Promise.resolve(false) };
    for (const preset of PRESETS) hasProgram({ programs }, preset, { arch: 'x64', libc: 'glibc' });
    expect(new Set(asked).size).toBe(4);
  });
});

describe('the user’s file of agents', () => {
  const FILE = '.config/acode/agents.yml';

  it('changes a preset and adds an agent', async () => {
    put(
      FILE,
      'agents:\n  claude:\n    version: 9.9.9\n    integrity: {}\n  work:\n    like: codex\n    title: Codex of the company\n  aider:\n    command: [aider]\n    network: { allow: [openai] }\n',
    );
    const all = await knownAgents(env);
    expect(all.map(({ preset }) => preset.name)).toEqual(['claude', 'codex', 'gemini', 'opencode', 'work', 'aider']);
    const { preset, changedBy } = await agentCalled('claude', env);
    expect({ version: preset.version, changedBy }).toEqual({ version: '9.9.9', changedBy: join(home, FILE) });
    // A version without a hash has no build: nothing unpinned is ever fetched.
    expect(platformsOf(preset)).toEqual([]);
    expect((await agentCalled('work', env)).preset.command).toEqual(['{program}/bin/codex']);
    expect((await agentCalled('aider', env)).preset.program).toBeUndefined();
  });

  it('is refused where a key is unknown, a base is missing, it is not YAML, or others can write it', async () => {
    for (const [text, reason] of [
      ['agents: { claude: { comand: [x] } }', 'comand'],
      ['agents: { mine: { like: none, command: [x] } }', 'is like none'],
      ['agents: { mine: { title: x } }', 'command'],
      ['agents: [', 'is not YAML'],
    ] as const) {
      put(FILE, text);
      await expect(knownAgents(env)).rejects.toMatchObject({
        code: 'ACODE-AGT-006',
        message: expect.stringContaining(reason),
      });
    }
    put(FILE, 'agents: {}', 0o666);
    await expect(knownAgents(env)).rejects.toThrow('can be written by others');
    put(FILE, 'agents: {}');
    expect(await knownAgents(env)).toHaveLength(4);
  });

  it('leaves a name that was mistyped to be corrected', async () => {
    await expect(agentCalled('cluade', env)).rejects.toMatchObject({
      code: 'ACODE-AGT-001',
      hint: 'Did you mean claude? `acode agent list` shows all.',
    });
    expect(['codx', 'codexx', 'cofex', 'ocdex', 'codex', 'aider'].map(typed => isNear('codex', typed))).toEqual([
      true,
      true,
      true,
      true,
      true,
      false,
    ]);
    expect(await agentOrProgram('./bin/x', env)).toMatchObject({ name: 'agent', command: ['./bin/x'] });
    await expect(agentOrProgram('cluade', env)).rejects.toMatchObject({ code: 'ACODE-AGT-001' });
  });
});

describe('the key of a model', () => {
  const values = [
    { key: 'sandbox.network.credentials', value: { anthropic: { from: { login: 'corp' } }, other: { from: 1 } } },
    { key: 'sandbox.network.private_hosts', value: ['*.example'] },
  ];
  const configured = (key: string): Promise<unknown> => Promise.resolve(valueAt(values, key));

  it('comes from the user’s configuration, however its sections are written, before a variable', async () => {
    expect(valueAt(values, 'sandbox.network.credentials.anthropic.from.login')).toBe('corp');
    expect(valueAt(values, 'sandbox.network.credentials.constructor')).toBeUndefined();
    expect(valueAt(values, 'sandbox.network.private_hosts.0')).toBeUndefined();
    const { claude, codex } = Object.fromEntries(PRESETS.map(preset => [preset.name, preset]));
    const keys = { ANTHROPIC_API_KEY: 'a', OPENAI_API_KEY: 'b' };
    expect(await credentialsOf(claude!, keys, configured)).toMatchObject({ anthropic: { from: { login: 'corp' } } });
    expect(await credentialsOf(codex!, keys, configured)).toMatchObject({
      openai: { from: { env: 'OPENAI_API_KEY' } },
    });
    await expect(credentialsOf(codex!, {}, configured)).rejects.toMatchObject({ code: 'ACODE-AGT-005' });
  });
});

describe('the user’s own configuration', () => {
  const CANARY = 'canary-4f1c';

  it('is copied by key: texts, chosen settings and servers, and no value of a variable, header, token or key', async () => {
    put('.claude/CLAUDE.md', 'Use tabs.\n');
    put('.claude/skills/review/SKILL.md', 'Review.\n');
    put('.claude/skills/deploy/SKILL.md', `Use sk-ant-api03-${'x'.repeat(30)}\n`);
    put('.claude/.credentials.json', { token: CANARY });
    put('.claude/settings.json', {
      model: 'opus',
      env: { A_TOKEN: CANARY },
      apiKeyHelper: `echo ${CANARY}`,
      hooks: { PreToolUse: [{ hooks: [{ command: CANARY }] }] },
      statusLine: { command: CANARY },
    });
    put('.claude.json', {
      oauthAccount: { id: CANARY },
      customApiKeyResponses: { approved: [CANARY] },
      projects: { '/home/me': { history: [CANARY] } },
      mcpServers: {
        docs: { command: 'npx', args: ['docs-server'], env: { DOCS_KEY: CANARY } },
        web: { type: 'http', url: 'https://mcp.example/v1', headers: { Authorization: CANARY } },
        query: { type: 'http', url: `https://mcp.example/v1?key=${CANARY}` },
        option: { command: 'server', args: ['--api-key', CANARY] },
        inside: { command: 'server', args: [`--header=Authorization: Bearer ${CANARY}`] },
      },
    });
    const { claude } = Object.fromEntries(PRESETS.map(preset => [preset.name, preset]));
    const { texts, fields, leftOut } = await copiedConfiguration(claude!, env);
    expect(JSON.stringify({ texts, fields })).not.toContain(CANARY);
    expect(texts).toEqual([
      { to: '{state}/claude/CLAUDE.md', text: 'Use tabs.\n' },
      { to: '{state}/claude/skills/review/SKILL.md', text: 'Review.\n' },
    ]);
    expect(fields).toEqual([
      { to: '{state}/claude/settings.json', values: { model: 'opus' } },
      {
        to: '{state}/claude/.claude.json',
        values: {
          mcpServers: {
            docs: { command: 'npx', args: ['docs-server'] },
            web: { type: 'http', url: 'https://mcp.example/v1' },
          },
        },
      },
    ]);
    expect(leftOut.map(({ file, key, why }) => `${file} ${key ?? ''} ${why}`)).toEqual([
      '~/.claude/skills/deploy/SKILL.md  secret',
      '~/.claude/settings.json env kind',
      '~/.claude/settings.json apiKeyHelper kind',
      '~/.claude/settings.json hooks kind',
      '~/.claude/settings.json statusLine kind',
      '~/.claude.json oauthAccount kind',
      '~/.claude.json customApiKeyResponses kind',
      '~/.claude.json projects kind',
      '~/.claude.json mcpServers.docs.env.DOCS_KEY secret',
      '~/.claude.json mcpServers.web.headers.Authorization secret',
      '~/.claude.json mcpServers.query secret',
      '~/.claude.json mcpServers.option secret',
      '~/.claude.json mcpServers.inside secret',
    ]);
  });

  it('of codex is TOML, and one that cannot be read or is too large is named and left out', async () => {
    put(
      '.codex/config.toml',
      `model = "m"\nexperimental_bearer_token = "${CANARY}"\n[mcp_servers.docs]\ncommand = "docs"\n[mcp_servers.docs.env]\nKEY = "${CANARY}"\n`,
    );
    put('.codex/AGENTS.md', 'x'.repeat(70_000));
    put('.codex/auth.json', { key: CANARY });
    const codex = PRESETS.find(({ name }) => name === 'codex')!;
    const { fields, texts, leftOut } = await copiedConfiguration(codex, env);
    expect({ fields, texts }).toEqual({
      fields: [{ to: '{state}/codex/config.toml', values: { model: 'm', mcp_servers: { docs: { command: 'docs' } } } }],
      texts: [],
    });
    expect(leftOut).toContainEqual({ file: '~/.codex/AGENTS.md', why: 'size' });
    put('.codex/config.toml', 'model = [');
    expect((await copiedConfiguration(codex, env)).leftOut).toContainEqual({
      file: '~/.codex/config.toml',
      why: 'unreadable',
    });
  });
});

const STUCK_MS = 10_000;

describe('the program that starts an agent', () => {
  async function start(seeds: Partial<Seeds>, more: Record<string, string> = {}): Promise<string> {
    const program = join(home, 'start');
    const programs = {
      has: () => false,
      add: async (_: string, fill: (directory: string, signal: AbortSignal) => Promise<void>) => {
        await fill(home, new AbortController().signal);
        return true;
      },
    };
    await addStart({ programs });
    const all = { files: [], cleared: [], path: [], ...seeds };
    return execFileSync(program, ['sh', '-c', 'env | grep -c ACODE_SEED; :; echo "$PATH"'], {
      env: { ...env, ...more, ...seedVariables(all) },
      encoding: 'utf8',
      // A program that opens a FIFO would wait for ever, and this process with it.
      timeout: STUCK_MS,
      killSignal: 'SIGKILL',
      // grep finds nothing, and that is a status of 1.
    });
  }

  it('writes its files over links, FIFOs and directories without permission, and becomes the agent without its own variables', async () => {
    const outside = put('outside/file', 'untouched');
    const base = `/tmp/${home.slice('/tmp/'.length)}`;
    mkdirSync(join(home, 'state/a'), { recursive: true });
    symlinkSync(join(home, 'outside'), join(home, 'state/linked'));
    symlinkSync(outside, join(home, 'state/a/settings'));
    execFileSync('mkfifo', [join(home, 'state/fifo')]);
    mkdirSync(join(home, 'state/closed/deep'), { recursive: true });
    chmodSync(join(home, 'state/closed/deep'), 0);
    put('state/skills/evil/SKILL.md', 'evil');
    const long = 'ä'.repeat(100_000);
    const printed = await start(
      {
        files: [
          { path: `${base}/state/a/settings`, text: 'url {base-url} end {key-end}', isTemplate: true },
          { path: `${base}/state/linked/deep/settings`, text: '{base-url}', isTemplate: false },
          { path: `${base}/state/fifo`, text: 'no fifo', isTemplate: false },
          { path: `${base}/state/closed`, text: long, isTemplate: false },
          { path: '~/.gitconfig', text: 'name', isTemplate: false },
        ],
        cleared: [`${base}/state/skills`],
        baseUrlVariable: 'MODEL_URL',
        keyVariable: 'MODEL_KEY',
        path: ['/opt/x'],
      },
      { MODEL_URL: 'http://127.0.0.1:3129/v1', MODEL_KEY: `sk-${'a'.repeat(30)}-12345678901234567890` },
    );
    expect(printed).toBe('0\n/usr/bin:/bin:/opt/x\n');
    const read = (path: string): string => readFileSync(join(home, path), 'utf8');
    expect(read('state/a/settings')).toBe('url http://127.0.0.1:3129 end 12345678901234567890');
    expect(read('state/linked/deep/settings')).toBe('{base-url}');
    expect(read('state/fifo')).toBe('no fifo');
    expect(read('state/closed')).toBe(long);
    expect(read('.gitconfig')).toBe('name');
    expect(readdirSync(join(home, 'state'))).not.toContain('skills');
    expect(read('outside/file')).toBe('untouched');
    expect(readdirSync(join(home, 'outside'))).toEqual(['file']);
  });
});

// One file in an archive, as npm packs it.
function tar(...entries: readonly (readonly [name: string, content: string, type?: string, mode?: string])[]): Buffer {
  const blocks = entries.flatMap(([name, content, type = '0', mode = '644']) => {
    const header = Buffer.alloc(512);
    header.write(name, 0);
    header.write(mode, 100);
    header.write(Buffer.byteLength(content).toString(8), 124);
    header.write(type, 156);
    header.write('ustar', 257);
    const body = Buffer.alloc(Math.ceil(Buffer.byteLength(content) / 512) * 512);
    body.write(content);
    return [header, body];
  });
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]));
}

describe('the program of an agent', () => {
  // A registry that serves one archive, whatever is asked for: what npm does with it is npm’s.
  function served(): { readonly around: Fetching; readonly added: string[]; readonly programs: Acode['programs'] } {
    writeFileSync(join(home, 'served.tgz'), tar(['package/claude', 'program', '0', '755']));
    put('bin/npm', `#!/bin/sh\ncp ${home}/served.tgz "$4/served.tgz"\n`, 0o755);
    const added: string[] = [];
    const programs = {
      has: () => false,
      add: async (id: string, fill: (directory: string, signal: AbortSignal) => Promise<void>) => {
        const directory = join(home, 'store');
        mkdirSync(directory);
        await fill(directory, AbortSignal.timeout(10_000));
        added.push(id);
        return true;
      },
    };
    const platform = { arch: 'x64', libc: 'glibc' as const };
    const signal = AbortSignal.timeout(20_000);
    return {
      around: { platform, env: { ...env, PATH: `${home}/bin:/usr/bin:/bin` }, workspace: '/none', signal },
      added,
      programs,
    };
  }

  const claude = PRESETS[0]!;
  const SPEC = `@anthropic-ai/claude-code-linux-x64@${claude.version}`;

  it('with another hash is not kept, and one with the pinned hash is', async () => {
    const { around, added, programs } = served();
    await expect(addProgram({ programs }, claude, around)).rejects.toMatchObject({
      code: 'ACODE-AGT-004',
      context: { package: SPEC },
    });
    expect(added).toEqual([]);
    expect(readdirSync(join(home, 'store'))).toEqual([]);
    rmSync(join(home, 'store'), { recursive: true });
    const hash = createHash('sha512')
      .update(readFileSync(join(home, 'served.tgz')))
      .digest('base64');
    const pinned = { ...claude, program: { ...claude.program!, integrity: { [SPEC]: `sha512-${hash}` } } };
    expect(await addProgram({ programs }, pinned, around)).toMatchObject({ target: '/opt/claude' });
    expect(readFileSync(join(home, 'store/bin/claude'), 'utf8')).toBe('program');
    expect(readdirSync(join(home, 'store'))).toEqual(['bin']);
  });

  it('is refused for an image without a build, with images that have one, and where npm is missing or lies in the workspace', async () => {
    const { around, programs } = served();
    const gemini = PRESETS.find(({ name }) => name === 'gemini')!;
    const musl = { ...around, platform: { arch: 'x64', libc: 'musl' as const }, image: 'node:20-alpine' };
    await expect(addProgram({ programs }, gemini, musl)).rejects.toMatchObject({
      code: 'ACODE-AGT-002',
      message: 'gemini has no build for linux x64 with musl, which is what the image node:20-alpine needs.',
      hint: expect.stringContaining('linux x64 with glibc'),
    });
    for (const elsewhere of [
      { ...around, env: { PATH: home } },
      { ...around, env: { PATH: `${home}/bin` }, workspace: home },
    ]) {
      await expect(addProgram({ programs }, claude, elsewhere)).rejects.toMatchObject({
        code: 'ACODE-AGT-003',
        context: { reason: 'no directory of PATH has npm' },
      });
      rmSync(join(home, 'store'), { recursive: true });
    }
  });
});

describe('an archive of npm', () => {
  it('gives the wanted files alone, and none outside of their directory', async () => {
    const archive = join(home, 'a.tgz');
    const long = `package/bin/${'x'.repeat(120)}`;
    writeFileSync(
      archive,
      tar(
        ['package/bin/tool', 'tool', '0', '755'],
        ['package/README.md', 'read me'],
        ['package/bin/../../outside', 'evil'],
        ['/package/bin/absolute', 'evil'],
        ['package/bin/link', '', '2'],
        ['x', `${String(long.length + 10)} path=${long}\n`, 'x'],
        ['package/bin/short', 'long'],
      ),
    );
    const into = join(home, 'into');
    mkdirSync(into);
    expect(await unpack(archive, into, [{ from: 'bin', to: 'there' }], AbortSignal.timeout(10_000))).toBe(2);
    expect(readdirSync(join(into, 'there')).sort()).toEqual(['tool', 'x'.repeat(120)].sort());
    expect(statSync(join(into, 'there/tool')).mode & 0o777).toBe(0o755);
    expect(readdirSync(home).sort()).toEqual(['a.tgz', 'into']);
  });

  it('that ends early is refused', async () => {
    const whole = tar(['package/a', 'x'.repeat(5000)]);
    const archive = join(home, 'a.tgz');
    writeFileSync(archive, gzipSync(gunzipSync(whole).subarray(0, 2000)));
    await expect(unpack(archive, home, [{ from: 'a', to: 'a' }], AbortSignal.timeout(10_000))).rejects.toThrow(
      'ends within',
    );
  });
});
