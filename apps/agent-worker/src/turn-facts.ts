import { allAbilities, type SchemaFacts, type TurnEnvironment } from "@larkline/agent";
import type { Facts } from "@larkline/agent/drive";
import type { SchemaChecks } from "@larkline/process/schemas";
import type { SchemaCheck } from "@larkline/protocol/json-schema";
import { teamOfTurn } from "@larkline/protocol/turn";
import type { Agent } from "./agent.ts";
import { agentsIn, helpersOf, isPaused, teamOfRun, transfersOf, type MayUse } from "./agents.ts";
import { TurnPolicy } from "./call-policy.ts";
import { GrantedScopes } from "./consents.ts";
import { limitsOfTask } from "./helpers.ts";
import type { RunningTurn } from "./running-turn.ts";
import type { Services } from "./services.ts";
import type { TurnStart } from "./turn-output.ts";

/**
 * The facts that the decisions of one turn are made of: one object for the whole turn, in which each decision finds those
 * of its moment. What costs a look-up is fetched once a decision has missed it, and the decision is made again.
 */
export class TurnFacts implements Facts {
  readonly #services: Services;
  readonly #run: RunningTurn;
  readonly #start: TurnStart;
  readonly #facts: TurnEnvironment & { known: NonNullable<TurnEnvironment["known"]> };
  readonly #schemas: CheckedValues;
  /** The policy of the turn, made for the first call or person that it has to decide about. */
  #policy: TurnPolicy | undefined;
  /** What the person of the turn has granted, made for the first call that acts as that person. */
  #granted: GrantedScopes | undefined;
  /** The agent whose facts `#facts` holds. */
  #agent: Agent | undefined;
  /** An agent of this run has. */
  #hasReadNotes = false;
  /** Whether the person may use an agent here, and it is not paused. */
  readonly mayUse: MayUse = (agent) => {
    const mayUse = (one: Agent): boolean =>
      one.config.access === null || this.#policyNow().mayUse(one);
    const isAtWork = ({ name }: Agent): boolean => !isPaused(this.#services, name);
    return (
      isAtWork(agent) && agentsIn(this.#services, agent).some((one) => isAtWork(one) && mayUse(one))
    );
  };

  constructor(services: Services, run: RunningTurn, start: TurnStart) {
    this.#services = services;
    this.#run = run;
    this.#start = start;
    this.#schemas = new CheckedValues(services.schemas);
    const { grants, clock } = services;
    const { message } = start.head;
    const { agent, model, stored } = run;
    this.#facts = {
      limits: run.first.limits,
      tools: services.toolCatalog.ofTurn(run),
      model: model.model,
      texts: agent.speech.texts,
      place: agent.place,
      nowMs: clock.now(),
      callPolicy: {
        verdict: (call) => this.#policyNow().verdict(call),
        unknownOutcome: (call) => this.#policyNow().unknownOutcome(call),
      },
      schemas: this.#schemas,
      abilities: allAbilities,
      known: {
        memory: { notes: [], wereRead: false },
        structured: undefined,
        helpers: undefined,
        handover: undefined,
        team: undefined,
        schedules: undefined,
        identity:
          grants === undefined
            ? undefined
            : {
                granted: () =>
                  (this.#granted ??= new GrantedScopes(grants, clock, message)).granted(),
              },
      },
      history: stored.history,
      othersWait: start.othersWait,
      live: undefined,
    };
  }

  /** The facts of this moment; the next call changes them. */
  now(): TurnEnvironment {
    const facts = this.#facts;
    const { history, live } = this.#run.stored;
    if (this.#agent !== this.#run.agent) this.#takeAgent();
    facts.nowMs = this.#services.clock.now();
    facts.tools = this.#services.toolCatalog.ofTurn(this.#run);
    facts.history = history;
    facts.live = live;
    facts.known.memory = { notes: this.#run.memories?.read ?? [], wereRead: this.#readsNotes() };
    this.#findOtherAgents();
    return facts;
  }

  /** What does not change while the same agent answers. */
  #takeAgent(): void {
    const { agent, first, model, options, zone } = this.#run;
    const facts = this.#facts;
    this.#agent = agent;
    facts.limits = this.#limitsOf(first.limits);
    facts.model = model.model;
    facts.texts = agent.speech.texts;
    facts.place = agent.place;
    facts.known.structured = options.form;
    facts.known.schedules = zone === undefined ? undefined : { zone: zone.name };
  }

  #limitsOf(limits: TurnEnvironment["limits"]): TurnEnvironment["limits"] {
    const { task } = this.#start.head.message;
    return task === undefined ? limits : limitsOfTask(task, limits);
  }

  /** The agents that may answer besides: whom of them the person may use is decided anew each time. */
  #findOtherAgents(): void {
    const { agent, stored } = this.#run;
    const { known } = this.#facts;
    const { mayUse } = this;
    const chosenModel = this.#start.settings.model;
    let together: Agent | undefined;
    if (teamOfTurn(stored.turn) !== undefined || agent.config.team !== null) {
      const found = teamOfRun(this.#services, this.#run, { chosenModel, mayUse });
      together = found.together;
      known.team = found.team;
      this.#facts.limits = this.#limitsOf(found.limits);
    }
    known.handover = transfersOf(this.#services, { agent, team: together, chosenModel, mayUse });
    known.helpers = agent.helpers.size === 0 ? undefined : helpersOf(this.#services, agent, mayUse);
  }

  /** What one agent of the turn has read in notes may be in what it said to the next one. */
  #readsNotes(): boolean {
    const { memories, stored } = this.#run;
    const team = teamOfTurn(stored.turn)?.name;
    this.#hasReadNotes ||=
      (memories?.read ?? []).length > 0 || (team !== undefined && this.#remembers(team));
    return this.#hasReadNotes;
  }

  /** Members may have spoken in another process. */
  #remembers(team: string): boolean {
    const { agents } = this.#services;
    const members = agents.get(team)?.config.team?.members ?? [];
    return members.some((name) => agents.get(name)?.hasMemory === true);
  }

  renew(): void {
    this.#policy?.renew();
    this.#granted?.renew();
  }

  supply(): Promise<boolean> | undefined {
    const policy = this.#policy?.supply();
    const schemas = this.#schemas.supply();
    const granted = this.#granted?.supply();
    const supplies = [policy, schemas, granted].filter((supplied) => supplied !== undefined);
    return supplies.length === 0 ? undefined : anyOf(supplies);
  }

  #policyNow(): TurnPolicy {
    return (this.#policy ??= new TurnPolicy(this.#services, this.#run, this.#start.head.message));
  }
}

async function anyOf(supplies: readonly Promise<boolean>[]): Promise<boolean> {
  return (await Promise.all(supplies)).includes(true);
}

/** What a turn knows of values and the schemas of others. A decision asks, {@link supply} finds out between decisions. */
class CheckedValues implements SchemaFacts {
  readonly #checks: SchemaChecks;
  /** The results so far, by the JSON of schema and value. */
  readonly #known = new Map<string, SchemaCheck>();
  #missed: { key: string; schema: object; value: unknown }[] = [];

  constructor(checks: SchemaChecks) {
    this.#checks = checks;
  }

  check(schema: object, value: unknown): SchemaCheck {
    const key = JSON.stringify([schema, value]);
    const known = this.#known.get(key);
    if (known === undefined) this.#missed.push({ key, schema, value });
    return known ?? { ok: true };
  }

  /** Checks what decisions have missed since the last call; undefined when they have missed nothing. */
  supply(): Promise<boolean> | undefined {
    return this.#missed.length === 0 ? undefined : this.#checkMissed();
  }

  async #checkMissed(): Promise<boolean> {
    const missed = this.#missed;
    this.#missed = [];
    await Promise.all(
      missed.map(async ({ key, schema, value }) => {
        this.#known.set(key, await this.#checks.check(schema, value));
      }),
    );
    return true;
  }
}
