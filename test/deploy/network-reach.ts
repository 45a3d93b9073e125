import { BlockList, isIPv6 } from "node:net";
import type {
  INetworkPolicy,
  INetworkPolicyPeer,
  INetworkPolicyPort,
} from "kubernetes-models/networking.k8s.io/v1";

type Labels = Readonly<Record<string, string>>;

/** A party on the network: a pod of a namespace, or an address elsewhere. */
export interface Party {
  name: string;
  /** Of pods alone. */
  namespace?: string;
  labels?: Labels;
  /** Numbers of its ports by their names. */
  ports?: Readonly<Record<string, number>>;
  address?: string;
}

interface Selector {
  matchLabels?: Labels;
  matchExpressions?: readonly { key: string; operator: string; values?: readonly string[] }[];
}

function isSelected(
  labels: Labels,
  { matchLabels = {}, matchExpressions = [] }: Selector,
): boolean {
  const holds = matchExpressions.every(({ key, operator, values = [] }) => {
    const isIn = values.includes(labels[key] ?? "");
    if (operator === "In") return isIn;
    if (operator === "NotIn") return !isIn;
    throw new Error(`no rule here uses ${operator}`);
  });
  return holds && Object.entries(matchLabels).every(([key, value]) => labels[key] === value);
}

function isInBlock(
  address: string,
  { cidr, except = [] }: { cidr: string; except?: readonly string[] },
): boolean {
  const family = isIPv6(address) ? "ipv6" : "ipv4";
  const isWithin = (block: string): boolean => {
    const [network = "", prefix = ""] = block.split("/");
    if (isIPv6(network) !== isIPv6(address)) return false;
    const list = new BlockList();
    list.addSubnet(network, Number(prefix), family);
    return list.check(address, family);
  };
  return isWithin(cidr) && !except.some(isWithin);
}

/** Whether a rule of a policy in `namespace` means this party. */
function isMeant(party: Party, peer: INetworkPolicyPeer, namespace: string): boolean {
  if (peer.ipBlock !== undefined) {
    return party.address !== undefined && isInBlock(party.address, peer.ipBlock);
  }
  if (party.namespace === undefined) return false;
  const isItsNamespace =
    peer.namespaceSelector === undefined
      ? party.namespace === namespace
      : isSelected({ "kubernetes.io/metadata.name": party.namespace }, peer.namespaceSelector);
  return isItsNamespace && isSelected(party.labels ?? {}, peer.podSelector ?? {});
}

function isOpen(
  port: number,
  target: Party,
  { protocol = "TCP", port: named }: INetworkPolicyPort,
): boolean {
  return protocol === "TCP" && (typeof named === "string" ? target.ports?.[named] : named) === port;
}

interface Question {
  from: Party;
  to: Party;
  port: number;
}

/** Whether the policies let one end of a connection have it; without any for it everything is allowed. */
function allows(
  policies: readonly INetworkPolicy[],
  side: "Ingress" | "Egress",
  { from, to, port }: Question,
): boolean {
  const [self, other] = side === "Egress" ? [from, to] : [to, from];
  const its = policies.filter(
    ({ metadata, spec }) =>
      metadata?.namespace === self.namespace &&
      (spec?.policyTypes ?? ["Ingress"]).includes(side) &&
      isSelected(self.labels ?? {}, spec?.podSelector ?? {}),
  );
  if (self.namespace === undefined || its.length === 0) return true;
  return its.some(({ spec }) => {
    const rules =
      side === "Egress" ? spec?.egress?.map((rule) => ({ peers: rule.to, ...rule })) : undefined;
    const all = rules ?? spec?.ingress?.map((rule) => ({ peers: rule.from, ...rule })) ?? [];
    return all.some(
      ({ peers, ports }) =>
        (peers === undefined || peers.some((peer) => isMeant(other, peer, self.namespace ?? ""))) &&
        (ports === undefined || ports.some((each) => isOpen(port, to, each))),
    );
  });
}

/** Whether a connection can be made, by what the policies of both ends say. */
export function reaches(policies: readonly INetworkPolicy[], question: Question): boolean {
  return allows(policies, "Egress", question) && allows(policies, "Ingress", question);
}
