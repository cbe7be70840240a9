"""PyTorch Geometric: graph attention over batches of graphs of different sizes, pooled by graph."""
import torch
import torch_geometric.data
import torch_geometric.loader
import torch_geometric.nn

from options import Options, tell


class Network(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.inside = torch.nn.Linear(32, width)
        self.layers = torch.nn.ModuleList(torch_geometric.nn.GATv2Conv(width, width // 4, heads=4, edge_dim=8)
                                          for _ in range(layers))
        self.norms = torch.nn.ModuleList(torch_geometric.nn.GraphNorm(width) for _ in range(layers))
        self.out = torch.nn.Linear(width, 5)

    def forward(self, graphs):
        x = self.inside(graphs.x)
        for layer, norm in zip(self.layers, self.norms):
            x = x + norm(layer(x, graphs.edge_index, graphs.edge_attr), graphs.batch).relu()
        return self.out(torch_geometric.nn.global_mean_pool(x, graphs.batch))


def graph(nodes):
    edges = torch.randint(0, nodes, (2, 8 * nodes))
    return torch_geometric.data.Data(x=torch.randn(nodes, 32), edge_index=edges, edge_attr=torch.randn(8 * nodes, 8),
                                     y=torch.randint(0, 5, (1,)))


def main():
    options = Options(batch=64)
    model = Network(options.size(16, 256), options.size(2, 6)).to(options.device)
    graphs = [graph(options.size(10, 300) + i) for i in range(3 * options.batch)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, batch in enumerate(torch_geometric.loader.DataLoader(graphs, batch_size=options.batch)):
        batch = batch.to(options.device)
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)


if __name__ == "__main__":
    main()
