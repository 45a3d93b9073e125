import type { AttackCase } from "./attack-case.fixture.ts";
import { languageAttacks } from "./attack-cases-languages.fixture.ts";
import { networkAttacks, writeAttacks } from "./attack-cases-network.fixture.ts";
import { integrityAttacks, processAttacks } from "./attack-cases-processes.fixture.ts";
import { resourceAttacks } from "./attack-cases-resources.fixture.ts";
import { userCases } from "./attack-cases-user.fixture.ts";
import { secretAttacks } from "./attack-cases-secrets.fixture.ts";

/** The conformance table: 66 attacks that every tier must hold. */
export const attackCases: readonly AttackCase[] = [
  ...resourceAttacks,
  ...secretAttacks,
  ...networkAttacks,
  ...writeAttacks,
  ...processAttacks,
  ...integrityAttacks,
  ...languageAttacks,
  ...userCases,
];
