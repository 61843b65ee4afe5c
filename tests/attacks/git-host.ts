// git as a person on the host uses it, in a repository that a sandbox could write: what runs then shows in a marker file.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const GIT = '/usr/bin/git';

/** A repository on the host. */
export class HostRepository {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  /** Makes a repository with one commit. */
  static make(root: string): HostRepository {
    const repository = new HostRepository(root);
    repository.git('init', '--quiet', '--initial-branch=main');
    repository.commit();
    return repository;
  }

  /** What a person does next. */
  commit(): void {
    this.git('commit', '--quiet', '--allow-empty', '--message=next');
  }

  /** Runs git in it and gives what it printed. */
  git(...words: readonly string[]): string {
    return execFileSync(GIT, [...words], {
      cwd: this.root,
      encoding: 'utf8',
      timeout: 20_000,
      env: {
        PATH: '/usr/bin:/bin',
        HOME: this.root,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_CONFIG_GLOBAL: '/dev/null',
        GIT_AUTHOR_NAME: 'a',
        GIT_AUTHOR_EMAIL: 'a@example.invalid',
        GIT_COMMITTER_NAME: 'a',
        GIT_COMMITTER_EMAIL: 'a@example.invalid',
      },
    });
  }

  /** Whether something that was planted has run on the host. */
  get hasRun(): boolean {
    return existsSync(join(this.root, 'PWNED'));
  }
}
