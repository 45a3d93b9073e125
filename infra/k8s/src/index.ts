export { clusterFiles, type Cluster } from "./cluster-files.ts";
