// Secret files by name, and names that only look like one.

import { expect, it } from 'vitest';
import { isSecret } from './context.ts';

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
  'deploy/db-secret.yaml',
  'aws_credentials.json',
  'credentials.xml',
  'secret.properties',
  'client_secret_1234.apps.json',
  'app-firebase-adminsdk-x1.json',
  'ssh_host_rsa_key',
  'AuthKey_1.p8',
  'service.keytab',
  'prod.kubeconfig',
  '.my.cnf',
  'wg0.conf',
  'auth.json',
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
  'src/secrets.ts',
  'credentials-provider.call.ts',
  'author.json',
  'nosecret.md',
])('%s is not', path => {
  expect(isSecret(path)).toBe(false);
});
