// Hardened from the first run on, seen as effects inside; each denial beside the legitimate thing that still works.

import { chmodSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, images } from '../support/engines.ts';
import { itWhere } from './targets.ts';
import type { Target } from './targets.ts';

export function hardeningBehaviours({ engine, options, ownKernel, isPodman }: Target): void {
  describe('the sandbox', () => {
    let host: TestHost;
    const sh = (script: string, image = images.busybox) => host.acode.run(['sh', '-c', script], { policy: { image } });
    beforeAll(async () => {
      host = await TestHost.open(engine, options);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    itWhere(!ownKernel)(
      'runs as the caller, with no capability, no new privileges and a system call filter',
      async () => {
        const { stdout } = await sh('id -u; id -g; grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status');
        const [uid, gid, ...status] = stdout.trim().split('\n');
        expect([Number(uid), Number(gid)]).toEqual([process.getuid?.(), process.getgid?.()]);
        expect(Object.fromEntries(status.map(line => line.split(/:\s+/)))).toEqual({
          CapInh: '0000000000000000',
          CapPrm: '0000000000000000',
          CapEff: '0000000000000000',
          CapBnd: '0000000000000000',
          CapAmb: '0000000000000000',
          NoNewPrivs: '1',
          Seccomp: '2',
        });
      },
    );

    itWhere(!ownKernel)('cannot write its root, and can write and execute in /tmp, /run and home', async () => {
      const denied = await sh('touch /x; touch /etc/x; touch /bin/x');
      expect(denied.stderr.match(/Read-only file system/g)).toHaveLength(3);
      const allowed = await sh(
        'for d in /tmp /run "$HOME"; do printf "#!/bin/sh\\necho ran\\n" > $d/s && chmod +x $d/s && $d/s; done',
      );
      expect(allowed.stdout).toBe('ran\nran\nran\n');
    });

    itWhere(!ownKernel)('has no network but its own loopback', async () => {
      const { stdout } = await sh('ls /sys/class/net; cat /proc/net/route | tail -n +2 | wc -l');
      expect(stdout.trim().split(/\s+/)).toEqual(['lo', '0']);
    });

    it('does not see the host’s processes, name or other directories', async () => {
      const { stdout } = await sh('ls /proc | grep -c "^[0-9]"; hostname; ls /workspace/.. | tr "\\n" " "');
      const [processes, name, root] = stdout.trim().split('\n');
      expect(Number(processes)).toBeLessThan(12);
      expect(name).toBe('sandbox');
      expect(root).not.toContain('run/acode-engines');
    });

    it('takes nothing of a hostile image but its files: no entrypoint, no health check, no volume, no preloaded code', async () => {
      const { stdout, stderr } = await sh(
        'pwd; env | grep -c -e LD_PRELOAD -e NODE_OPTIONS; echo $FOO; sleep 1.5; ls /data /tmp; grep -c " /data " /proc/mounts; grep " /data " /proc/mounts | cut -d" " -f3',
        images.hostile,
      );
      expect(stderr).toBe('');
      expect(stdout.trim().split('\n')).toEqual(['/workspace', '0', 'bar', '/data:', '', '/tmp:', '1', 'tmpfs']);
    });

    it('is refused as root, by policy', async () => {
      for (const user of ['0:0', '0:1000', '1000:0'] as const) {
        await expect(host.acode.run(['id'], { policy: { user } })).rejects.toMatchObject({
          code: 'ACODE-SBX-010',
          context: { violation: 'PrivilegedUser' },
        });
      }
    });

    itWhere(!isPodman)('can be another user by number, where the kernel’s view is the mount table alone', async () => {
      chmodSync(host.workspace, 0o755);
      expect((await host.acode.run(['id', '-u'], { policy: { user: '4242:4242' } })).stdout).toBe('4242\n');
    });

    it('runs real work: python, node, git and a C build', { timeout: 120_000 }, async () => {
      const script =
        'python3 -c "print(6*7)" && node -e "console.log(6*7)" && git --version >/dev/null && printf "int main(){return 42;}" > $HOME/a.c && gcc -o $HOME/a $HOME/a.c && { $HOME/a; echo $?; }';
      const { stdout, stderr } = await host.acode.run(['sh', '-c', script], { policy: { image: images.debian } });
      expect(stderr).toBe('');
      expect(stdout).toBe('42\n42\n42\n');
    });
  });
}
