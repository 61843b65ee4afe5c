// A call is understood well enough to find its server, and whatever is not understood is not served.

import { describe, expect, it } from 'vitest';
import { buildProgram } from '../program.ts';
import { WITHOUT_VALUE, whereOf } from './location-options.ts';

describe('where a call runs', () => {
  it.each<[string, ReturnType<typeof whereOf>]>([
    ['run true', {}],
    ['run -- true', {}],
    ['sandbox exec -- true', {}],
    ['--json sandbox --verbose exec true', {}],
    ['--workspace /a run true', { workspace: '/a' }],
    ['sandbox --workspace=/a exec --config b.yml true', { workspace: '/a', config: 'b.yml' }],
    ['run --memory 256 --socket /s --readonly true', { socket: '/s' }],
    ['run --readonly --workspace /a true', { workspace: '/a' }],
    ['--workspace /a run --workspace /b true', { workspace: '/b' }],
    // After the command, words are its own.
    ['run true --workspace /a', {}],
    ['run -- true --help', {}],
    ['run --memory --help -- true', {}],
    // Variables of the caller’s own, and files of them, are not a server’s to read.
    ['run --env A=1 -- true', {}],
    ['run --env=A=1 -- true', {}],
    ['run --env A -- true', null],
    ['run --env=A -- true', null],
    ['run --env-file a.env -- true', null],
    ['run --env-file=a.env true', null],
    ['sandbox exec a1b2c3d4 -- true', null],
    ['run', {}],
    ['test', {}],
    ['build --with go --workspace /a -- -v', { workspace: '/a' }],
    ['test --parallel --workspace /a', { workspace: '/a' }],
    ['test --help', null],
    ['run --help', null],
    ['--version', null],
    ['-V', null],
    ['run -h', null],
    ['explain -- true', null],
    ['sandbox list', null],
    ['serve', null],
    ['sandbox exec --in a1b2c3d4 -- true', null],
    ['sandbox exec --in=a1b2c3d4 true', null],
    ['run -t vi', null],
    ['run --terminal vi', null],
    ['sandbox exec --memory --in -- true', {}],
    ['sandbox shell a1b2c3d4', null],
    // A value that is missing is the parser’s to complain about.
    ['run --workspace', { workspace: '' }],
    ['', null],
  ])('of `%s` is %j', (line, where) => {
    expect(whereOf(line.split(' ').filter(Boolean))).toEqual(where);
  });

  it('knows every option of those commands that takes no value', async () => {
    const program = buildProgram(() => Promise.resolve(), { text: '', width: null });
    // What is below a command is prepared when it is called.
    await program.parseAsync(['sandbox', 'exec', 'true'], { from: 'user' });
    const exec = program.commands.find(one => one.name() === 'sandbox')?.commands.find(one => one.name() === 'exec');
    await program.parseAsync(['test'], { from: 'user' });
    const test = program.commands.find(one => one.name() === 'test');
    const options = [exec, test].flatMap(command => command?.options ?? []);
    const flags = new Set(options.filter(({ required }) => !required).map(({ long }) => long));
    expect(flags).toEqual(new Set(WITHOUT_VALUE));
  });
});
