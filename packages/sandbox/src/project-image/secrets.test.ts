// What is a secret by its name, and what is not.

import { expect, it } from 'vitest';
import { isSecret } from './secrets.ts';

it.each([
  '.env',
  '.env.local',
  'sub/.ENV',
  'production.env',
  '.envrc',
  '.git',
  'vendor/lib/.git',
  '.npmrc',
  '.ssh',
  'deploy/id_rsa',
  'id_ed25519.pub',
  'tls/server.key',
  'tls/server.PEM',
  'keys/app.p12',
  '.aws',
  '.docker',
  'home/.config/gcloud',
  '.cargo/credentials.toml',
  'terraform.tfstate',
  'terraform.tfstate.backup',
  'prod.tfvars',
  'service-account-prod.json',
  '.netrc',
  '.bash_history',
  '.agent',
])('%s is withheld', path => {
  expect(isSecret(path)).toBe(true);
});

it.each([
  'src/index.ts',
  'package.json',
  'package-lock.json',
  'environment.ts',
  'src/env.ts',
  'keyboard.js',
  'docs/keys.md',
  '.gitignore',
  '.github',
  '.gitattributes',
  '.config/other',
  '.cargo/config.toml',
  'monkey',
])('%s is not', path => {
  expect(isSecret(path)).toBe(false);
});
